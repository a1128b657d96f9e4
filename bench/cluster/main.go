// The replicated log of examples/cluster beside etcd: two clusters of three processes on this machine, the same puts.
//
// A module of its own: nobody who uses Inkstone compiles etcd. README.md says how to run it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const usage = `usage:
  cluster compare --program FILE --dir DIR [--rounds 7] [--clients 64] [--seconds 3] [--value-bytes 128] [--seed 1]
      FILE is the built program of examples/cluster, with its example 'load' built beside it; DIR is on the disk that is measured
  cluster load --servers A,B,C [--clients 64] [--seconds 3] [--value-bytes 128]
      one turn on an etcd cluster that runs; prints its figures as JSON
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	clients := flags.Int("clients", 64, "clients that each wait for their put")
	seconds := flags.Float64("seconds", 3, "seconds of one turn")
	valueBytes := flags.Int("value-bytes", 128, "bytes of a value")
	servers := flags.String("servers", "", "addresses of an etcd cluster")
	program := flags.String("program", "", "the replicated log's program")
	dir := flags.String("dir", "", "directory on the disk that is measured")
	rounds := flags.Int("rounds", 7, "rounds")
	seed := flags.Uint64("seed", 1, "of orders and intervals")
	duration := func() time.Duration { return time.Duration(*seconds * float64(time.Second)) }
	switch args[0] {
	case "member":
		if len(args) != 6 {
			return fmt.Errorf("member: a command of `compare` only")
		}
		return member(args[1], args[2], args[3], args[4], args[5])
	case "load":
		flags.Parse(args[1:])
		if *servers == "" {
			return fmt.Errorf("load: --servers is missing\n%s", usage)
		}
		result, err := loadEtcd(*servers, *clients, duration(), *valueBytes)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	case "compare":
		flags.Parse(args[1:])
		if *program == "" || *dir == "" {
			return fmt.Errorf("compare: --program and --dir are needed\n%s", usage)
		}
		if *rounds < 1 || *clients < 1 || *seconds <= 0 || *valueBytes < 0 {
			return fmt.Errorf("compare: rounds, clients and seconds are at least 1\n%s", usage)
		}
		return compare(plan{*program, filepath.Join(filepath.Dir(*program), "examples", "load"), *dir, *rounds, *clients, duration(), *valueBytes, *seed})
	}
	return fmt.Errorf("no command %q\n%s", args[0], usage)
}
