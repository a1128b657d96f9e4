// Pebble as a writer and a reader: store write|read DIR default|no-sync
package main

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

func main() {
	what, dir, setting := os.Args[1], os.Args[2], os.Args[3]
	db := must(pebble.Open(dir+"/db", &pebble.Options{Logger: quiet{}}))
	// Reading an item costs nothing of its durability, so the writer counts as the reader does.
	number := 0
	all := must(db.NewIter(nil))
	for all.First(); all.Valid(); all.Next() {
		number++
		if what == "read" {
			fmt.Printf("%s\n", all.Value())
		}
	}
	check(all.Error())
	check(all.Close())
	if what == "read" {
		return
	}
	how := pebble.Sync // A nil *WriteOptions is Sync, too.
	if setting == "no-sync" {
		how = pebble.NoSync
	}
	for {
		number++
		item := fmt.Sprint("item ", number)
		check(db.Set(fmt.Appendf(nil, "%010d", number), []byte(item), how))
		fmt.Println(item)
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(text string, values ...any) {
	check(fmt.Errorf(text, values...))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
