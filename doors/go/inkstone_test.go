// The promises of the package, each call of it, and bad use.

package inkstone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

var background = context.Background()

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func well(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func same[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// small opens a log with small files.
// eventually waits for what shall come of itself.
func eventually(t testing.TB, what string, has func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !has(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("no %s for half a minute", what)
		}
	}
}

// sizes are the options of a small log, and more.
func sizes(more ...Option) []Option {
	return append([]Option{
		WithSegmentBytes(1 << 16), WithRecordBytesMax(1 << 15), WithBufferBytes(1 << 16),
	}, more...)
}

func small(t testing.TB, path string, more ...Option) *Log {
	t.Helper()
	log := must[*Log](t)(Open(path, sizes(more...)...))
	t.Cleanup(func() { log.Close() })
	return log
}

func contents(t testing.TB, path string) (all []string) {
	t.Helper()
	reader := must[*Reader](t)(OpenReader(path))
	defer reader.Close()
	for record, err := range reader.Records(reader.First()) {
		well(t, err)
		all = append(all, fmt.Sprintf("%d:%s", record.LSN, record.Data))
	}
	return all
}

// Records that are parts of one array, in its order, are not copied; all others are.
func TestABatchIsJoinedWhateverItsRecordsArePartsOf(t *testing.T) {
	all := []byte("abcdefgh")
	for _, batch := range []struct {
		records [][]byte
		isArray bool
	}{
		{[][]byte{all[:3], all[3:4], all[4:]}, true},
		{[][]byte{all[:0], all[:3], {}, all[3:8], all[8:]}, true},
		{[][]byte{all[2:3], all[3:5]}, true},
		{[][]byte{all[:3:3], all[3:]}, false}, // It may not be known that they are of one array.
		{[][]byte{all[:3], all[:3]}, false},
		{[][]byte{all[3:5], all[:3]}, false},
		{[][]byte{all[:3], all[4:]}, false},
		{[][]byte{all[:6], all[3:]}, false},
		{[][]byte{all[:2], []byte("xyz")}, false},
		{[][]byte{nil, {}, nil}, true},
		{[][]byte{nil, all[:2]}, false},
	} {
		joined := join(batch.records)
		same(t, string(joined), string(bytes.Join(batch.records, nil)))
		isArray := unsafe.SliceData(joined) == unsafe.SliceData(batch.records[0])
		same(t, isArray, batch.isArray)
	}
}

func TestEveryAppendIsThereAfterClose(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	same(t, must[uint64](t)(log.AppendDurable(background, []byte("a"))), 1)
	same(t, log.Durable(), 1)
	p := must[*Pending](t)(log.AppendParts([]byte("b"), nil, []byte("c")))
	well(t, p.Wait(background))
	well(t, p.Wait(background)) // The same answer again.
	same(t, log.Durable(), p.LSN())
	batch := must[*Pending](t)(log.AppendBatch([]byte("d"), []byte{}, []byte("e")))
	same(t, batch.FirstLSN(), 3)
	same(t, batch.LSN(), 5)
	<-batch.Done()
	well(t, batch.Err())
	same(t, must[uint64](t)(log.AppendUnwaited([]byte("f"))), 6)
	same(t, must[uint64](t)(log.Sync(background)), 6)
	with, end := context.WithTimeout(background, time.Minute)
	defer end()
	same(t, must[uint64](t)(log.AppendDurable(with, nil)), 7)
	same(t, must[uint64](t)(log.Sync(with)), 7)
	late := must[*Pending](t)(log.Append([]byte("g")))
	well(t, late.Err())
	same(t, log.First(), 1)
	same(t, log.Last(), 8)
	same(t, log.HeadFirst(), 1)
	well(t, log.Close())
	well(t, log.Close())
	well(t, late.Wait(background)) // Closing has made it durable.
	<-must[*Pending](t)(late, nil).Done()
	same(t, strings.Join(contents(t, path), " "), "1:a 2:bc 3:d 4: 5:e 6:f 7: 8:g")
	report := must[Report](t)(Verify(path))
	same(t, report.IsIntact, true)
	same(t, report.Records, 8)
	same(t, report.Verdict, "end")
	to := filepath.Join(t.TempDir(), "copy")
	same(t, must[uint64](t)(Copy(path, to)), 8)
	same(t, len(contents(t, to)), 8)
}

func TestTruncationsStay(t *testing.T) {
	path := t.TempDir()
	log := small(t, path, WithBeginAt(101))
	for i := range 10 {
		must[uint64](t)(log.AppendUnwaited([]byte{byte('0' + i)}))
	}
	reader := must[*Reader](t)(log.Reader())
	defer reader.Close()
	must[uint64](t)(log.Sync(background))
	cursor := must[*Cursor](t)(reader.Cursor(109))
	defer cursor.Close()
	well(t, log.TruncateBefore(104))
	well(t, log.TruncateAfter(106))
	_, err := reader.Get(103, nil)
	is(t, err, ErrTruncatedBefore)
	var details Error
	if !errors.As(err, &details) || details.Advice() == "" {
		t.Fatalf("%+v", details)
	}
	lsn, isKnown := details.LSN()
	same(t, isKnown, true)
	same(t, lsn, 104)
	_, err = reader.Get(107, nil)
	is(t, err, ErrNotYet)
	_, err = cursor.Next(nil)
	is(t, err, ErrTruncatedAfter)
	same(t, cursor.NextLSN(), 107)
	well(t, cursor.Seek(106))
	same(t, string(must[Record](t)(cursor.Next(nil)).Data), "5")
	same(t, must[uint64](t)(log.AppendDurable(background, []byte("x"))), 107)
	well(t, log.Close())
	same(t, strings.Join(contents(t, path), " "), "104:3 105:4 106:5 107:x")
}

func TestErrorsSayWhat(t *testing.T) {
	path := t.TempDir()
	_, err := Open(filepath.Join(path, "none"+strings.Repeat("x", 300)), WithoutCreate())
	is(t, err, ErrIO)
	is(t, err, syscall.ENAMETOOLONG)
	var details Error
	if !errors.As(err, &details) || !strings.Contains(details.Path(), "none") ||
		!strings.Contains(err.Error(), details.Path()) {
		t.Fatalf("%+v", details)
	}
	for _, path := range []string{path, filepath.Join(path, "none")} {
		_, err = Open(path, WithoutCreate())
		is(t, err, ErrNoLog)
		_, err = Verify(path)
		is(t, err, ErrNoLog)
	}
	if errors.Is(err, ErrIO) || errors.Is(err, os.ErrClosed) {
		t.Fatal("two codes")
	}
	_, err = Open(path + "\x00b")
	is(t, err, ErrInvalid)
	_, err = Open("")
	is(t, err, ErrInvalid)
	for _, option := range []Option{
		WithAccess("x"), WithDurability("x\x00"), WithPreparation("x"), WithSegmentBytes(5),
	} {
		_, err = Open(path, option)
		is(t, err, ErrInvalid)
	}
	log := small(t, path, WithFreeSegmentsMax(0), WithTailBytes(0), WithPadGroups(),
		WithDiskBudgetBytes(1<<20), WithFileMode(0o640), WithAccess("buffered"),
		WithDurability("fdatasync"), WithPreparation("fallocate"))
	_, err = Open(path)
	is(t, err, ErrLocked)
	_, err = log.Append(make([]byte, 1<<16))
	is(t, err, ErrTooLarge)
	_, err = log.AppendBatch()
	is(t, err, ErrInvalid)
	full := error(nil)
	for range 1000 {
		if _, full = log.AppendDurable(background, make([]byte, 30000)); full != nil {
			break
		}
	}
	is(t, full, ErrNoRoom)
	well(t, log.Close())
	_, err = Open(path, WithExpectDurable(1000))
	is(t, err, ErrCorrupt)
	_, err = Verify(t.TempDir())
	is(t, err, ErrNoLog)
	if Code(77).Error() != "inkstone: other" || ErrNoRoom.Error() != "inkstone: no room" {
		t.Fatal(Code(77), ErrNoRoom)
	}
}

func TestTextsAreThere(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	must[uint64](t)(log.AppendDurable(background, []byte("a")))
	for _, text := range []func() (string, error){log.Recovery, log.Choice} {
		if must[string](t)(text()) == "" {
			t.Fatal("no text")
		}
	}
	reader := must[*Reader](t)(OpenReader(path))
	defer reader.Close()
	if must[string](t)(reader.Recovery()) == "" || Version() == "" {
		t.Fatal("no text")
	}
	well(t, reader.EndOfLog())
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	log := small(t, t.TempDir())
	must[uint64](t)(log.AppendDurable(background, []byte("a")))
	reader := must[*Reader](t)(log.Reader())
	cursor := must[*Cursor](t)(reader.Cursor(1))
	well(t, log.Close())
	is(t, reader.EndOfLog(), ErrClosed)
	same(t, string(must[[]byte](t)(reader.Get(1, nil))), "a")
	well(t, reader.Close())
	well(t, reader.Close())
	same(t, must[Record](t)(cursor.Next(nil)).LSN, 1)
	well(t, cursor.Close())
	well(t, cursor.Close())
	var zero Log
	for _, log := range []*Log{log, &zero} {
		_, errs := 0, []error{log.TruncateBefore(1), log.TruncateAfter(1)}
		add := func(_ any, err error) { errs = append(errs, err) }
		add(log.Append(nil))
		add(log.TryAppend(nil))
		add(log.AppendParts(nil, nil))
		add(log.AppendBatch(nil))
		add(log.AppendUnwaited(nil))
		add(log.AppendDurable(background, nil))
		add(log.Sync(background))
		add(log.Reader())
		add(log.Stats())
		add(log.Recovery())
		for i, err := range errs {
			if !errors.Is(err, ErrClosed) || !errors.Is(err, os.ErrClosed) {
				t.Fatal(i, err)
			}
		}
		same(t, log.First()+log.Last()+log.Durable()+log.HeadFirst(), 0)
	}
	is(t, zero.Close(), ErrClosed)
	_, err := reader.Get(1, nil)
	is(t, err, ErrClosed)
	_, err = reader.Cursor(1)
	is(t, err, ErrClosed)
	same(t, reader.First()+reader.Durable(), 0)
	_, err = cursor.Next(nil)
	is(t, err, ErrClosed)
	is(t, cursor.Seek(1), ErrClosed)
	same(t, cursor.NextLSN(), 0)
	_, err = cursor.Follow(background, nil)
	is(t, err, os.ErrClosed)
	for _, loop := range []iter.Seq2[Record, error]{reader.Records(1), reader.Follow(background, 1)} {
		for _, err := range loop {
			is(t, err, os.ErrClosed)
		}
	}
}

func TestCloseWhileOthersAppendKeepsWhatWasAcknowledged(t *testing.T) {
	for round := range 10 {
		path := t.TempDir()
		log := small(t, path)
		with, end := context.WithCancel(background)
		var group sync.WaitGroup
		acknowledged := make([]uint64, 16)
		for g := range acknowledged {
			group.Go(func() {
				ctx := background
				if g%2 == 0 {
					ctx = with
				}
				for {
					lsn, err := log.AppendDurable(ctx, []byte("record"))
					if err != nil {
						is(t, err, ErrClosed)
						return
					}
					acknowledged[g] = lsn
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() { well(t, log.Close()) })
		}
		closers.Wait()
		group.Wait()
		end()
		records := uint64(len(contents(t, path)))
		for _, lsn := range acknowledged {
			if lsn > records {
				t.Fatalf("%d was acknowledged, and the log ends at %d", lsn, records)
			}
		}
	}
}

// More goroutines wait than a program may have threads.
func TestManyGoroutinesWait(t *testing.T) {
	goroutines := uint64(12000)
	if raceEnabled {
		goroutines = 4000 // The race detector allows 8128.
	}
	log := small(t, t.TempDir())
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() { must[uint64](t)(log.AppendDurable(background, []byte("record"))) })
	}
	group.Wait()
	same(t, log.Durable(), goroutines)
}

func TestAContextEndsTheWaitingAlone(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	ended, end := context.WithCancel(background)
	end()
	_, err := log.AppendDurable(ended, []byte("not appended"))
	is(t, err, context.Canceled)
	_, err = log.Sync(ended)
	is(t, err, context.Canceled)
	p := must[*Pending](t)(log.Append([]byte("a")))
	if err := p.Wait(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	well(t, p.Wait(background))
	same(t, log.Durable(), 1)
}

// A reader as in another process sees what the writer posts: from then on no record is shown that
// is gone.
func TestNoReadShowsWhatWasTruncated(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	for range 20 {
		must[uint64](t)(log.AppendDurable(background, []byte("old")))
	}
	reader := must[*Reader](t)(OpenReader(path))
	defer reader.Close()
	at := func(lsn uint64) *Cursor {
		cursor := must[*Cursor](t)(reader.Cursor(lsn))
		t.Cleanup(func() { cursor.Close() })
		return cursor
	}
	early, late := at(2), at(15)
	same(t, must[Record](t)(early.Next(nil)).LSN, 2)
	same(t, must[Record](t)(late.Next(nil)).LSN, 15)
	same(t, string(must[[]byte](t)(reader.Get(15, nil))), "old")
	well(t, log.TruncateAfter(10))
	for range 10 {
		must[uint64](t)(log.AppendDurable(background, []byte("new")))
	}
	_, err := late.Next(nil)
	is(t, err, ErrTruncatedAfter)
	same(t, must[Record](t)(late.Next(nil)).LSN, 11)
	same(t, string(must[Record](t)(at(15).Next(nil)).Data), "new")
	same(t, string(must[[]byte](t)(reader.Get(15, nil))), "new")
	well(t, log.TruncateBefore(5))
	_, err = early.Next(nil)
	is(t, err, ErrTruncatedBefore)
	_, err = at(4).Follow(background, nil)
	is(t, err, ErrTruncatedBefore)
	// What a failed append leaves is no record's.
	_, err = reader.Get(0, nil)
	is(t, err, ErrInvalid)
	_, err = at(0).Next(nil)
	is(t, err, ErrInvalid)
}

func TestFollow(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	for name, open := range map[string]func() (*Reader, error){
		"own":   log.Reader,
		"other": func() (*Reader, error) { return OpenReader(path) },
	} {
		reader := must[*Reader](t)(open())
		from := log.Last() + 1
		cursor := must[*Cursor](t)(reader.Cursor(from))
		well(t, reader.Close())
		soon, end := context.WithTimeout(background, 20*time.Millisecond)
		_, err := cursor.Follow(soon, nil)
		is(t, err, context.DeadlineExceeded)
		end()
		go func() {
			for range 100 {
				log.AppendDurable(background, []byte(name))
			}
		}()
		for i := range uint64(100) {
			record := must[Record](t)(cursor.Follow(background, nil))
			same(t, record.LSN, from+i)
			same(t, string(record.Data), name)
		}
		answer := make(chan error)
		go func() {
			_, err := cursor.Follow(background, nil)
			answer <- err
		}()
		time.Sleep(10 * time.Millisecond)
		well(t, cursor.Close())
		is(t, <-answer, ErrClosed)
	}
	reader := must[*Reader](t)(log.Reader())
	cursor := must[*Cursor](t)(reader.Cursor(200))
	must[Record](t)(cursor.Next(nil))
	go func() { time.Sleep(10 * time.Millisecond); log.Close() }()
	_, err := cursor.Follow(background, nil)
	is(t, err, ErrClosed)
}

// What C gets is bytes alone, also where they lie beside pointers of Go: the checks of cgo would
// panic else.
func TestBytesOfAnyOwner(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	owner := &struct {
		next  *Log
		bytes [3]byte
	}{log, [3]byte{'a', 'b', 'c'}}
	mapped := must[[]byte](t)(syscall.Mmap(-1, 0, 4096,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON))
	defer syscall.Munmap(mapped)
	mapped[0] = 'm'
	for _, data := range [][]byte{owner.bytes[:], mapped[:1]} {
		must[uint64](t)(log.AppendDurable(background, data))
		must[uint64](t)(log.AppendUnwaited(data))
		must[*Pending](t)(log.AppendParts(data, data))
		must[*Pending](t)(log.AppendBatch(data, data))
	}
	reader := must[*Reader](t)(log.Reader())
	must[uint64](t)(log.Sync(background))
	got := must[[]byte](t)(reader.Get(1, nil))
	got[0] = 'z' // The caller's.
	if !bytes.Equal(must[[]byte](t)(reader.Get(1, nil)), []byte("abc")) {
		t.Fatal("a record was changed")
	}
	well(t, log.Close())
	same(t, strings.Join(contents(t, path), " "),
		"1:abc 2:abc 3:abcabc 4:abc 5:abc 6:m 7:m 8:mm 9:m 10:m")
}

// A program that forgets to close gets the log closed when the garbage is collected.
func TestForgottenHandlesAreFreed(t *testing.T) {
	path := t.TempDir()
	func() {
		log := must[*Log](t)(Open(path))
		reader := must[*Reader](t)(log.Reader())
		must[*Cursor](t)(reader.Cursor(1))
		must[*Pending](t)(log.Append([]byte("a")))
	}()
	for range 500 {
		runtime.GC()
		log, err := Open(path)
		if err == nil {
			same(t, log.Durable(), 1)
			well(t, log.Close())
			return
		}
		is(t, err, ErrLocked)
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the log was never closed")
}

var _ io.Closer = (*Log)(nil)
var _ io.Closer = (*Reader)(nil)
var _ io.Closer = (*Cursor)(nil)
