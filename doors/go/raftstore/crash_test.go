// A node that is killed keeps what it has acknowledged, and shows no entry that it was not given.
// The test is its own child.

package raftstore

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/hashicorp/raft"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("INKSTONE_TEST_NODE"); path != "" {
		panic(node(path))
	}
	os.Exit(m.Run())
}

// node stores and deletes for ever. It says what it is about to delete, and what is durable: "may
// LAST", "first FIRST", "last LAST", "term TERM". The term, which each change of an entry has a new
// one of, is stored before the entries that have it.
func node(path string) error {
	store, err := Open(path)
	if err != nil {
		return err
	}
	say := func(what string, number uint64) { os.Stdout.WriteString(fmt.Sprintln(what, number)) }
	term, err := store.GetUint64([]byte("term"))
	for err == nil {
		var first, last uint64
		if first, last, err = store.ends(); err != nil {
			break
		}
		switch kind := rand.IntN(20); {
		case kind == 0 && last > 0: // A snapshot was restored: all go, and the next entry is another.
			say("may", 0)
			err = store.DeleteRange(first, last)
			last = rand.Uint64N(1000)
		case kind == 1 && last > first:
			cut := first + rand.Uint64N(last-first)
			if err = store.DeleteRange(first, cut); err == nil {
				say("first", cut+1)
			}
		case kind == 2 && last > first:
			last = first + rand.Uint64N(last-first)
			say("may", last)
			err = store.DeleteRange(last+1, 1<<62)
		}
		term++
		if err == nil {
			err = store.SetUint64([]byte("term"), term)
			say("term", term)
		}
		if err == nil {
			count := 1 + rand.Uint64N(10)
			err = store.StoreLogs(entries(last+1, last+count, term))
			say("last", last+count)
		}
	}
	return err
}

func TestAKilledNodeKeepsWhatItAcknowledged(t *testing.T) {
	path := t.TempDir()
	said := map[string]uint64{}
	for range 12 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "INKSTONE_TEST_NODE="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		well(t, err)
		well(t, child.Start())
		lines, until := bufio.NewScanner(out), rand.IntN(300)
		for n := 0; lines.Scan(); n++ {
			var what string
			var number uint64
			if count, err := fmt.Sscan(lines.Text(), &what, &number); count != 2 {
				t.Fatal(lines.Text(), err)
			}
			switch what {
			case "may":
				said["last"] = min(said["last"], number)
				if number == 0 {
					said["first"] = 0
				}
			default:
				said[what] = number
			}
			if n == until {
				well(t, child.Process.Kill())
			}
		}
		if err := child.Wait(); err == nil || said["term"] == 0 {
			t.Fatal("the node ended by itself", err)
		}
		inspect(t, path, said)
	}
}

// inspect compares what is there with what was said.
func inspect(t *testing.T, path string, said map[string]uint64) {
	store := open(t, path)
	defer store.Close()
	term, err := store.GetUint64([]byte("term"))
	well(t, err)
	first, last, err := store.ends()
	well(t, err)
	if term < said["term"] || last < said["last"] || first < said["first"] && first != 0 {
		t.Fatalf("term %d, entries %d to %d; said was %v", term, first, last, said)
	}
	before := uint64(0)
	for index := first; index <= last && first != 0; index++ {
		var got raft.Log
		well(t, store.GetLog(index, &got))
		if got.Index != index || got.Term < before || got.Term > term ||
			!bytes.Equal(got.Data, entry(index, got.Term).Data) {
			t.Fatalf("after an entry of term %d, in term %d: %+v", before, term, got)
		}
		before = got.Term
	}
}
