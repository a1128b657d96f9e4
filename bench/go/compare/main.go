// Compare measures the Go package beside C, and the stores for raft beside raft-wal and raft-boltdb, in one process and in turns.
//
//	compare door|loads|own DIRECTORY [TURNS [NODES]]
//
// door: Go beside C. loads: entries a second of one and of up to 64 nodes at once (NODES: of at most so many). own: the benchmarks of hashicorp/raft for stores.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// slice is how long a way runs in one turn.
const slice = 250 * time.Millisecond

var turns, nodesMax = 11, 64

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	what := map[string]func(string) error{"door": door, "loads": loads, "own": own}
	if len(arguments) < 2 || what[arguments[0]] == nil {
		return errors.New("usage: compare door|loads|own DIRECTORY [TURNS [NODES]]")
	}
	for i, number := range []*int{&turns, &nodesMax} {
		if len(arguments) <= i+2 {
			break
		}
		var err error
		if *number, err = strconv.Atoi(arguments[i+2]); err != nil || *number < 1 {
			return fmt.Errorf("%q is no number above 0", arguments[i+2])
		}
	}
	testing.Init()
	if err := errors.Join(flag.Set("test.benchtime", slice.String()), os.MkdirAll(arguments[1], 0o700)); err != nil {
		return err
	}
	path, err := os.MkdirTemp(arguments[1], "compare-")
	if err != nil {
		return err
	}
	return errors.Join(what[arguments[0]](path), os.RemoveAll(path))
}
