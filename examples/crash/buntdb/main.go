// BuntDB as a writer and a reader: store write|read DIR default|always
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/tidwall/buntdb"
)

func main() {
	what, dir, setting := os.Args[1], os.Args[2], os.Args[3]
	db, err := buntdb.Open(dir + "/items.db")
	check(err)
	if setting == "always" {
		var config buntdb.Config
		check(db.ReadConfig(&config))
		config.SyncPolicy = buntdb.Always
		check(db.SetConfig(config))
	}
	number := 0
	check(db.View(func(tx *buntdb.Tx) error {
		return tx.Ascend("", func(_, item string) bool {
			number++
			if what == "read" {
				fmt.Println(item)
			}
			return true
		})
	}))
	for what == "write" {
		number++
		item := fmt.Sprint("item ", number)
		check(db.Update(func(tx *buntdb.Tx) error {
			_, _, err := tx.Set(fmt.Sprintf("%010d", number), item, nil)
			return err
		}))
		fmt.Println(item)
		if setting == "default" {
			time.Sleep(4 * time.Millisecond)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
