// Opens a log, appends, reads back: first DIRECTORY
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"inkstone.example/inkstone"
)

func run(path string) (err error) {
	log, err := inkstone.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	// Durable when it returns.
	if _, err := log.AppendDurable(context.Background(), []byte("one order")); err != nil {
		return err
	}
	reader, err := log.Reader()
	if err != nil {
		return err
	}
	defer reader.Close()
	for record, err := range reader.Records(log.First()) {
		if err != nil {
			return err
		}
		fmt.Printf("%d: %s\n", record.LSN, record.Data)
	}
	return nil
}

func main() {
	path := "orders"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
