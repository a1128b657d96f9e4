package main

// The comparison: both clusters run all the time, each has its turn in every round, in an order that chance decides. A ratio is
// taken within a round.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

type plan struct {
	program    string
	load       string
	dir        string
	rounds     int
	clients    int
	duration   time.Duration
	valueBytes int
	seed       uint64
}

func compare(p plan) error {
	work, err := os.MkdirTemp(p.dir, "cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	etcd, err := startEtcd(filepath.Join(work, "etcd"))
	if err != nil {
		return err
	}
	defer etcd.stop()
	ours, err := startOurs(p.program, p.load, filepath.Join(work, "ours"))
	if err != nil {
		return err
	}
	defer ours.stop()

	chance := rand.New(rand.NewPCG(p.seed, 0))
	both := []*cluster{ours, etcd}
	for _, c := range both { // Warm: connections, first files.
		if _, err := c.load(p.clients, time.Second, p.valueBytes); err != nil {
			return err
		}
	}
	all := map[string][]figures{}
	fmt.Printf("%d members, %d clients, puts of %d bytes, %v a turn, %d rounds, seed %d\n",
		members, p.clients, p.valueBytes, p.duration, p.rounds, p.seed)
	for round := range p.rounds {
		chance.Shuffle(len(both), func(i, j int) { both[i], both[j] = both[j], both[i] })
		for _, c := range both {
			result, err := c.load(p.clients, p.duration, p.valueBytes)
			if err != nil {
				return err
			}
			fmt.Printf("round %d %-14s %8.0f puts/s, p50 %6.0f us, p99 %6.0f us, %d failed\n",
				round+1, c.name, float64(result.Requests)/result.Seconds, result.P50Micros, result.P99Micros, result.Failed)
			if result.Requests == 0 {
				return fmt.Errorf("%s answered no put in a whole turn", c.name)
			}
			all[c.name] = append(all[c.name], result)
		}
	}
	rate := func(f figures) float64 { return float64(f.Requests) / f.Seconds }
	tail := func(f figures) float64 { return f.P99Micros }
	report("puts/s of etcd's", all[ours.name], all[etcd.name], rate, chance)
	report("p99 of etcd's", all[ours.name], all[etcd.name], tail, chance)
	return nil
}

// report prints the median of the rounds' ratios and its 95% interval, by the bootstrap.
func report(what string, ours, theirs []figures, value func(figures) float64, chance *rand.Rand) {
	ratios := make([]float64, len(ours))
	for round := range ours {
		ratios[round] = value(ours[round]) / value(theirs[round])
	}
	medians := make([]float64, 10_000)
	for number := range medians {
		drawn := make([]float64, len(ratios))
		for i := range drawn {
			drawn[i] = ratios[chance.IntN(len(ratios))]
		}
		medians[number] = median(drawn)
	}
	slices.Sort(medians)
	fmt.Printf("replicated-log: %.2f [%.2f..%.2f] of %s\n", median(ratios), medians[250], medians[9749], what)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
