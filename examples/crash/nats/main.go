// NATS with JetStream, and its client: store start|ready|client|reader default|always
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func main() {
	what, setting := os.Args[1], os.Args[2]
	if what == "start" {
		it := must(server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: must(strconv.Atoi(os.Getenv("PORT"))), NoSigs: true,
			JetStream: true, StoreDir: os.Getenv("DIR"), SyncAlways: setting == "always",
		}))
		it.Start()
		it.WaitForShutdown()
		return
	}
	js := must(must(nats.Connect("127.0.0.1:" + os.Getenv("PORT"))).JetStream())
	// The stream of this name is made, or it is there.
	stream := must(js.AddStream(&nats.StreamConfig{Name: "items", Subjects: []string{"items"}}))
	number := stream.State.LastSeq
	for next := uint64(1); what == "reader" && next <= number; next++ {
		fmt.Printf("%s\n", must(js.GetMsg("items", next)).Data)
	}
	for what == "client" {
		number++
		item := fmt.Sprint("item ", number)
		must(js.Publish("items", []byte(item)))
		fmt.Println(item)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
