// Lines is a writer and a reader for `inkstone powerloss any`, which kills the writer or cuts its power, and asks the reader what is left:
//
//	lines write STORE DIRECTORY    prints a line for each entry that is durable, until it is killed
//	lines read STORE DIRECTORY     prints the entries that are there
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/hashicorp/raft"
	"inkstone.example/bench/stores"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: lines write|read STORE DIRECTORY")
		os.Exit(2)
	}
	var err error
	switch what, name, path := os.Args[1], os.Args[2], os.Args[3]; what {
	case "write":
		err = write(name, path)
	case "read":
		err = read(name, path)
	default:
		err = fmt.Errorf("%q is neither write nor read", what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(name, path string) error {
	store, err := stores.OpenSmall(name, path)
	if err != nil {
		return err
	}
	last, err := store.LastIndex()
	if err != nil {
		return err
	}
	for index := last + 1; ; {
		// One entry, then three at once: all lines of a StoreLogs come when all are durable.
		var logs []*raft.Log
		for range 1 + index%2*2 {
			logs = append(logs, &raft.Log{Index: index, Term: 1, Data: fmt.Appendf(nil, "entry %d", index)})
			index++
		}
		if err := store.StoreLogs(logs); err != nil {
			return err
		}
		for _, log := range logs {
			if _, err := fmt.Println(string(log.Data)); err != nil {
				return err
			}
		}
	}
}

func read(name, path string) error {
	// In an empty directory there is nothing, and nothing is made.
	if there, err := os.ReadDir(path); err != nil || len(there) == 0 {
		return err
	}
	store, err := stores.OpenSmall(name, path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	if err := stores.Each(store, func(log *raft.Log) error {
		_, err := fmt.Fprintln(out, string(log.Data))
		return err
	}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return store.Close()
}
