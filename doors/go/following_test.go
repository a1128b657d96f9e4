// Following: what goroutines that wait at the end of a log cost, and that each gets all records.

package inkstone

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// threadsNow is how many threads this process has.
func threadsNow(t testing.TB) (n int) {
	t.Helper()
	for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile("/proc/self/status")))) {
		if rest, is := strings.CutPrefix(line, "Threads:"); is {
			fmt.Sscan(rest, &n)
		}
	}
	return n
}

// quiet waits until the process has made no call of C for a while; goroutines that only wait make
// none.
func quiet(t testing.TB) {
	t.Helper()
	runtime.GC() // What was forgotten is freed in C.
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		calls := runtime.NumCgoCall()
		time.Sleep(200 * time.Millisecond)
		if calls == runtime.NumCgoCall() {
			return
		}
	}
	t.Fatal("goroutines that only wait call C again and again")
}

// follow has each cursor wait for its next record, on a goroutine of its own.
func follow(cursors []*Cursor) <-chan error {
	answers := make(chan error, len(cursors))
	for _, cursor := range cursors {
		go func() {
			_, err := cursor.Follow(background, nil)
			answers <- err
		}()
	}
	return answers
}

func cursors(t testing.TB, reader *Reader, lsn uint64, n int) []*Cursor {
	all := make([]*Cursor, n)
	for i := range all {
		all[i] = must[*Cursor](t)(reader.Cursor(lsn))
		t.Cleanup(func() { all[i].Close() })
	}
	return all
}

// readers open the log as the process that writes it, and as another one would.
func readers(log *Log, path string) []func() (*Reader, error) {
	return []func() (*Reader, error){log.Reader, func() (*Reader, error) { return OpenReader(path) }}
}

// Go begins a thread when another one is in C for long, be it that a busy machine lets it wait. It
// ends none.
const fewThreads = 32

func TestAThousandFollowersHaveNoThreadAndMakeNoCall(t *testing.T) {
	log := small(t, t.TempDir())
	reader := must[*Reader](t)(log.Reader())
	defer reader.Close()
	all := cursors(t, reader, 1, 1000)
	must[uint64](t)(log.AppendDurable(background, []byte("first")))
	for range all {
		well(t, <-follow(all[:1]))
		all = append(all[1:], all[0])
	}
	before := threadsNow(t)
	for _, end := range []func(){
		func() { must[uint64](t)(log.AppendDurable(background, []byte("second"))) },
		func() { well(t, log.Close()) },
	} {
		answers := follow(all)
		quiet(t)
		calls := runtime.NumCgoCall()
		time.Sleep(300 * time.Millisecond)
		same(t, runtime.NumCgoCall(), calls)
		if now := threadsNow(t); now > before+fewThreads {
			t.Fatalf("%d threads, and %d before", now, before)
		}
		end()
		for range all {
			if err := <-answers; log.Durable() != 0 {
				well(t, err)
			} else {
				is(t, err, ErrClosed)
			}
		}
	}
}

func TestFollowersOfAnotherProcessHaveOneThread(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	must[uint64](t)(log.AppendDurable(background, []byte("first")))
	reader := must[*Reader](t)(OpenReader(path))
	all := cursors(t, reader, 2, 1000)
	well(t, reader.Close())
	before := threadsNow(t)
	answers := follow(all)
	time.Sleep(time.Second) // Until all wait.
	calls := runtime.NumCgoCall()
	time.Sleep(3 * watchTime)
	if made := runtime.NumCgoCall() - calls; made > 4 {
		t.Fatalf("%d calls of C in 3 seconds", made)
	}
	// They met at the lock of the view, and have parted.
	if now := threadsNow(t); now > before+threads+fewThreads {
		t.Fatalf("%d threads, and %d before", now, before)
	}
	must[uint64](t)(log.AppendDurable(background, []byte("second")))
	for range all {
		well(t, <-answers)
	}
	// Cursors far ahead do not hold up the others.
	far := follow(cursors(t, must[*Reader](t)(OpenReader(path)), 1000, 10))
	answers = follow(all)
	must[uint64](t)(log.AppendDurable(background, []byte("third")))
	for range all {
		well(t, <-answers)
	}
	same(t, len(far), 0)
	must[*Pending](t)(log.AppendBatch(make([][]byte, 997)...))
	must[uint64](t)(log.Sync(background))
	for range 10 {
		well(t, <-far)
	}
}

// More readers of other processes than may wait at a time take turns.
func TestManyReadersOfAnotherProcessTakeTurns(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	must[uint64](t)(log.AppendDurable(background, []byte("first")))
	before := threadsNow(t)
	var all []*Cursor
	for range 4 * threads {
		reader := must[*Reader](t)(OpenReader(path))
		defer reader.Close()
		all = append(all, cursors(t, reader, 2, 1)...)
	}
	answers := follow(all)
	time.Sleep(2 * watchTime)
	if now := threadsNow(t); now > before+2*threads+fewThreads {
		t.Fatalf("%d threads, and %d before", now, before)
	}
	must[uint64](t)(log.AppendDurable(background, []byte("second")))
	for range all {
		well(t, <-answers)
	}
}

func TestFollowersLearnOfACut(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	must[*Pending](t)(log.AppendBatch(make([][]byte, 100)...))
	must[uint64](t)(log.Sync(background))
	for _, open := range readers(log, path) {
		reader := must[*Reader](t)(open())
		defer reader.Close()
		all := cursors(t, reader, log.Last()+1, 10)
		answers := follow(all)
		time.Sleep(50 * time.Millisecond)
		well(t, log.TruncateAfter(log.Last()-10))
		for range all {
			is(t, <-answers, ErrTruncatedAfter)
		}
		same(t, all[0].NextLSN(), log.Last()+1)
	}
}

// Each of many goroutines gets every record in order, whatever ends their waits.
func TestFollowersMissNothing(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	const records = 2000
	var group sync.WaitGroup
	for _, open := range readers(log, path) {
		reader := must[*Reader](t)(open())
		defer reader.Close()
		for _, cursor := range cursors(t, reader, 1, 16) {
			group.Go(func() {
				var buf []byte
				for lsn := uint64(1); lsn <= records; {
					ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(5000))*time.Microsecond)
					record, err := cursor.Follow(ctx, buf)
					cancel()
					if err == context.DeadlineExceeded {
						continue
					}
					if err != nil || record.LSN != lsn || string(record.Data) != fmt.Sprint(lsn) {
						t.Errorf("%d %q %v, and %d is next", record.LSN, record.Data, err, lsn)
						return
					}
					buf = record.Data
					lsn++
				}
			})
		}
	}
	for lsn := range uint64(records) {
		must[uint64](t)(log.AppendDurable(background, fmt.Append(nil, lsn+1)))
		if lsn%100 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	group.Wait()
}

// Reading loops end where they should, and give back what they hold.
func TestLoops(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	for _, record := range []string{"a", "b", "c"} {
		must[uint64](t)(log.AppendDurable(background, []byte(record)))
	}
	// All records are in the first segment. Files that the log prepares meanwhile stay open.
	files := func() (count int) {
		for _, file := range must[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd")) {
			name, _ := os.Readlink(filepath.Join("/proc/self/fd", file.Name()))
			if filepath.Dir(name) != path || strings.HasSuffix(name, "01.ink") {
				count++
			}
		}
		return count
	}
	before := files()
	for _, open := range readers(log, path) {
		reader := must[*Reader](t)(open())
		var got []string
		for record, err := range reader.Records(2) {
			well(t, err)
			got = append(got, string(record.Data))
		}
		same(t, strings.Join(got, ""), "bc")
		for record, err := range reader.Records(1) {
			well(t, err)
			same(t, record.LSN, 1)
			break
		}
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		seen, last := uint64(0), error(nil)
		for record, err := range reader.Follow(ctx, 1) {
			seen, last = max(seen, record.LSN), err
		}
		cancel()
		same(t, seen, 3)
		is(t, last, context.DeadlineExceeded)
		well(t, reader.Close())
	}
	well(t, log.TruncateBefore(2))
	for _, err := range must[*Reader](t)(log.Reader()).Records(1) {
		is(t, err, ErrTruncatedBefore)
	}
	eventually(t, "files that were open before alone", func() bool { return files() <= before })
}

// A view that nobody follows any more is given back when the reader and its cursors are closed, in
// whatever order.
func TestTheLastUserOfAViewFreesIt(t *testing.T) {
	path := t.TempDir()
	well(t, small(t, path).Close())
	reader := must[*Reader](t)(OpenReader(path))
	one, other := must[*Cursor](t)(reader.Cursor(1)), must[*Cursor](t)(reader.Cursor(1))
	view := reader.view
	same(t, view.users.Load(), 3)
	well(t, one.Close())
	well(t, reader.Close())
	well(t, reader.Close())
	same(t, view.users.Load(), 1)
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	_, err := other.Follow(ctx, nil)
	is(t, err, context.DeadlineExceeded)
	well(t, other.Close())
	eventually(t, "the end of watch", func() bool { return view.users.Load() == 0 })
}

// closingContext closes a cursor amid a call that waits on it, as another goroutine may.
type closingContext struct {
	context.Context
	close func()
}

func (c closingContext) Done() <-chan struct{} {
	c.close()
	return c.Context.Done()
}

// A goroutine that follows is a user of the view too: the cursor that it waits on may be closed,
// and the reader before that.
func TestAFollowerOfAClosedCursorHasItsView(t *testing.T) {
	path := t.TempDir()
	well(t, small(t, path).Close())
	reader := must[*Reader](t)(OpenReader(path))
	cursor := must[*Cursor](t)(reader.Cursor(1))
	view := reader.view
	well(t, reader.Close())
	_, err := cursor.Follow(closingContext{background, func() {
		well(t, cursor.Close())
		same(t, view.users.Load(), 1)
	}}, nil)
	is(t, err, ErrClosed)
	eventually(t, "the end of watch", func() bool { return view.users.Load() == 0 })
}

func TestReadingIntoTheCallersMemoryAllocatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := small(t, path)
	want := bytes.Repeat([]byte("x"), 100)
	for range 1000 {
		must[uint64](t)(log.AppendUnwaited(want))
	}
	must[uint64](t)(log.Sync(background))
	for _, open := range readers(log, path) {
		reader := must[*Reader](t)(open())
		defer reader.Close()
		cursor := cursors(t, reader, 1, 1)[0]
		buf := make([]byte, 100)
		right := func(data []byte, err error) {
			well(t, err)
			if &data[0] != &buf[0] || !bytes.Equal(data, want) {
				t.Fatal("not the bytes, or not where they should be")
			}
			clear(buf)
		}
		same(t, testing.AllocsPerRun(100, func() {
			record, err := cursor.Next(buf)
			right(record.Data, err)
		}), 0)
		same(t, testing.AllocsPerRun(100, func() {
			record, err := cursor.Follow(background, buf)
			right(record.Data, err)
		}), 0)
		same(t, testing.AllocsPerRun(100, func() { right(reader.Get(7, buf)) }), 0)
		well(t, cursor.Seek(1001))
		same(t, testing.AllocsPerRun(100, func() {
			if _, err := cursor.Next(buf); err != errNotYet {
				t.Fatal(err)
			}
		}), 0)
		// Too little memory is not used, and none is given back where there is none.
		same(t, string(must[[]byte](t)(reader.Get(7, make([]byte, 99)))), string(want))
	}
}

func BenchmarkNext(b *testing.B) {
	log := must[*Log](b)(Open(b.TempDir()))
	defer log.Close()
	reader := must[*Reader](b)(log.Reader())
	defer reader.Close()
	for range 100_000 {
		must[uint64](b)(log.AppendUnwaited(make([]byte, 100)))
	}
	must[uint64](b)(log.Sync(background))
	cursor := must[*Cursor](b)(reader.Cursor(1))
	defer cursor.Close()
	var record Record
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if record, err = cursor.Next(record.Data); err == errNotYet {
			well(b, cursor.Seek(1))
		}
	}
}
