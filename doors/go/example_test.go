// Examples for go doc, which go test runs.

package inkstone_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"inkstone.example/inkstone"
)

var ctx = context.Background()

// check ends an example at an error; a program would return it.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// place is a directory for an example's log.
func place() (path string, remove func()) {
	path, err := os.MkdirTemp("", "inkstone")
	check(err)
	return filepath.Join(path, "orders"), func() { os.RemoveAll(path) }
}

// Each record is durable when its append returns.
func Example() {
	path, remove := place()
	defer remove()
	orders, err := inkstone.Open(path)
	check(err)
	defer orders.Close()
	for _, order := range []string{"one order", "another"} {
		_, err := orders.AppendDurable(ctx, []byte(order))
		check(err)
	}
	reader, err := orders.Reader()
	check(err)
	defer reader.Close()
	for record, err := range reader.Records(1) {
		check(err)
		fmt.Printf("%d: %s\n", record.LSN, record.Data)
	}
	// Output:
	// 1: one order
	// 2: another
}

// Several records go out together; a select waits for all of them.
func ExamplePending_Done() {
	path, remove := place()
	defer remove()
	orders, err := inkstone.Open(path)
	check(err)
	defer orders.Close()
	var last *inkstone.Pending
	for range 100 {
		last, err = orders.Append([]byte("an order"))
		check(err)
	}
	select {
	case <-last.Done():
		check(last.Err())
		fmt.Println(last.LSN(), "orders are durable")
	case <-time.After(time.Minute):
		fmt.Println("the disk is slow")
	}
	// Output: 100 orders are durable
}

// Another process may write the log that this one follows.
func ExampleReader_Follow() {
	path, remove := place()
	defer remove()
	orders, err := inkstone.Open(path)
	check(err)
	defer orders.Close()
	reader, err := inkstone.OpenReader(path)
	check(err)
	defer reader.Close()
	go func() {
		for i := range 3 {
			_, err := orders.AppendDurable(ctx, fmt.Append(nil, "order ", i))
			check(err)
		}
	}()
	for record, err := range reader.Follow(ctx, 1) {
		check(err)
		fmt.Printf("%d: %s\n", record.LSN, record.Data)
		if record.LSN == 3 {
			break
		}
	}
	// Output:
	// 1: order 0
	// 2: order 1
	// 3: order 2
}

// One buffer serves for many records.
func ExampleCursor_Next() {
	path, remove := place()
	defer remove()
	orders, err := inkstone.Open(path)
	check(err)
	defer orders.Close()
	_, err = orders.AppendBatch([]byte("a"), []byte("bb"), []byte("ccc"))
	check(err)
	_, err = orders.Sync(ctx)
	check(err)
	reader, err := orders.Reader()
	check(err)
	defer reader.Close()
	cursor, err := reader.Cursor(1)
	check(err)
	defer cursor.Close()
	bytes, buf := 0, make([]byte, 0, 4096)
	for {
		record, err := cursor.Next(buf)
		if errors.Is(err, inkstone.ErrNotYet) {
			break // The end.
		}
		check(err)
		bytes, buf = bytes+len(record.Data), record.Data
	}
	fmt.Println(bytes, "bytes")
	// Output: 6 bytes
}

// A consumer keeps its place over a restart, and learns of records that were cut meanwhile.
func ExampleReader_From() {
	path, remove := place()
	defer remove()
	orders, err := inkstone.Open(path)
	check(err)
	defer orders.Close()
	_, err = orders.AppendBatch([]byte("one"), []byte("two"), []byte("three"))
	check(err)
	_, err = orders.Sync(ctx)
	check(err)
	reader, err := orders.Reader()
	check(err)
	defer reader.Close()
	cursor, err := reader.Cursor(1)
	check(err)
	for range 3 {
		_, err := cursor.Next(nil)
		check(err)
	}
	stored := cursor.Place()
	cursor.Close()

	check(orders.TruncateAfter(1))
	_, err = orders.AppendDurable(ctx, []byte("another"))
	check(err)

	again, err := reader.From(stored)
	check(err)
	defer again.Close()
	_, err = again.Next(nil)
	fmt.Println(errors.Is(err, inkstone.ErrTruncatedAfter))
	record, err := again.Next(nil)
	check(err)
	fmt.Printf("%d: %s\n", record.LSN, record.Data)
	// Output:
	// true
	// 2: another
}

// An error has a code for the program, and says the rest.
func ExampleError() {
	path, remove := place()
	defer remove()
	check(os.Mkdir(path, 0o700))
	_, err := inkstone.Open(path, inkstone.WithoutCreate())
	fmt.Println(errors.Is(err, inkstone.ErrNoLog))
	var details inkstone.Error
	if errors.As(err, &details) {
		fmt.Println(details.Code(), "in", filepath.Base(details.Path()))
	}
	// Output:
	// true
	// inkstone: no log in orders
}

// A listener hears what happens in a log.
func ExampleWithListener() {
	path, remove := place()
	defer remove()
	heard := make(chan inkstone.Event, 1)
	orders, err := inkstone.Open(path, inkstone.WithListener(func(event inkstone.Event) {
		if event.Kind == inkstone.EventRecovered {
			heard <- event
		}
	}))
	check(err)
	defer orders.Close()
	fmt.Println((<-heard).Text)
	// Output: created
}
