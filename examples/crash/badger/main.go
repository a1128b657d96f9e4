// Badger as a writer and a reader: store write|read DIR default|sync-writes
package main

import (
	"fmt"
	"os"

	"github.com/dgraph-io/badger/v4"
)

func main() {
	what, dir, setting := os.Args[1], os.Args[2], os.Args[3]
	options := badger.DefaultOptions(dir + "/db").WithLogger(nil)
	db := must(badger.Open(options.WithSyncWrites(setting == "sync-writes")))
	number := 0
	check(db.View(func(tx *badger.Txn) error {
		all := tx.NewIterator(badger.DefaultIteratorOptions)
		defer all.Close()
		for all.Rewind(); all.Valid(); all.Next() {
			number++
			item := must(all.Item().ValueCopy(nil))
			if what == "read" {
				fmt.Printf("%s\n", item)
			}
		}
		return nil
	}))
	if what == "read" {
		return
	}
	for {
		number++
		item := fmt.Sprint("item ", number)
		check(db.Update(func(tx *badger.Txn) error {
			return tx.Set(fmt.Appendf(nil, "%010d", number), []byte(item))
		}))
		fmt.Println(item)
	}
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
