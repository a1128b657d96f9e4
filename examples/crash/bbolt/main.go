// bbolt as a writer and a reader: store write|read DIR default|no-sync
package main

import (
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

func main() {
	what, dir, setting := os.Args[1], os.Args[2], os.Args[3]
	db := must(bolt.Open(dir+"/items.db", 0o600, &bolt.Options{NoSync: setting == "no-sync"}))
	check(db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte("items"))
		return err
	}))
	if what == "read" {
		check(db.View(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("items")).ForEach(func(_, item []byte) error {
				_, err := fmt.Printf("%s\n", item)
				return err
			})
		}))
		return
	}
	for {
		var item string
		check(db.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket([]byte("items"))
			number := must(bucket.NextSequence())
			item = fmt.Sprint("item ", number)
			return bucket.Put(fmt.Appendf(nil, "%010d", number), []byte(item))
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
