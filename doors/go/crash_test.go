// A process that is killed keeps what it has acknowledged: the test is its own child.

package inkstone

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("INKSTONE_TEST_WRITER"); path != "" {
		write(path)
	}
	os.Exit(m.Run())
}

// write appends from several goroutines and prints each LSN that is durable, until it is killed.
func write(path string) {
	log, err := Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				lsn, err := log.AppendDurable(background, []byte("record"))
				if err != nil {
					panic(err)
				}
				os.Stdout.WriteString(fmt.Sprintln(lsn))
			}
		})
	}
	group.Wait()
}

func TestAKilledProcessKeepsWhatItAcknowledged(t *testing.T) {
	path := t.TempDir()
	acknowledged := uint64(0)
	for round := range 8 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "INKSTONE_TEST_WRITER="+path)
		child.Stderr = os.Stderr
		out := must[interface {
			Read([]byte) (int, error)
			Close() error
		}](t)(child.StdoutPipe())
		well(t, child.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var lsn uint64
			fmt.Sscan(lines.Text(), &lsn)
			acknowledged = max(acknowledged, lsn)
			if n == 50+37*round {
				well(t, child.Process.Kill())
			}
		}
		if err := child.Wait(); err == nil || acknowledged == 0 {
			t.Fatal("the writer ended by itself", err)
		}
		log := must[*Log](t)(Open(path, WithExpectDurable(acknowledged)))
		if log.Durable() < acknowledged {
			t.Fatalf("%d was acknowledged, and the log ends at %d", acknowledged, log.Durable())
		}
		well(t, log.Close())
	}
}
