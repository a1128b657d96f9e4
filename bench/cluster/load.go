package main

// The load on an etcd cluster: clients that each wait for their put. It is a process of its own, as our load is.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// figures of one turn, of either side. A latency is from a client's call to its answer.
type figures struct {
	Requests  int     `json:"requests"`
	Failed    int     `json:"failed"`
	Seconds   float64 `json:"seconds"`
	P50Micros float64 `json:"p50_us"`
	P99Micros float64 `json:"p99_us"`
}

// loadEtcd puts values of valueBytes for that long. Each client has a key of its own and a connection of its own.
func loadEtcd(endpoints string, clients int, duration time.Duration, valueBytes int) (figures, error) {
	value := strings.Repeat("v", valueBytes)
	var group sync.WaitGroup
	latencies := make([][]time.Duration, clients)
	failed := make([]int, clients)
	connections := make([]*clientv3.Client, 0, clients)
	defer func() {
		for _, connection := range connections {
			connection.Close()
		}
	}()
	all := strings.Split(endpoints, ",")
	for range clients {
		connection, err := clientv3.New(clientv3.Config{Endpoints: all, DialTimeout: 5 * time.Second})
		if err != nil {
			return figures{}, err
		}
		connections = append(connections, connection)
	}
	// One put each before the clock starts, so that no turn pays for connecting.
	for number, connection := range connections {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := connection.Put(ctx, fmt.Sprintf("key-%d", number), value)
		cancel()
		if err != nil {
			return figures{}, fmt.Errorf("the first put of client %d: %w", number, err)
		}
	}
	start := time.Now()
	end := start.Add(duration)
	for number, connection := range connections {
		group.Go(func() {
			key := fmt.Sprintf("key-%d", number)
			for time.Now().Before(end) {
				from := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				_, err := connection.Put(ctx, key, value)
				cancel()
				if err != nil {
					failed[number]++
					continue
				}
				latencies[number] = append(latencies[number], time.Since(from))
			}
		})
	}
	group.Wait()
	return summed(latencies, failed, time.Since(start)), nil
}

func summed(latencies [][]time.Duration, failed []int, took time.Duration) figures {
	all := slices.Concat(latencies...)
	slices.Sort(all)
	result := figures{Requests: len(all), Seconds: took.Seconds()}
	for _, count := range failed {
		result.Failed += count
	}
	if len(all) > 0 {
		result.P50Micros = micros(all[len(all)/2])
		result.P99Micros = micros(all[len(all)*99/100])
	}
	return result
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
