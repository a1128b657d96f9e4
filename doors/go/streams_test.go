// Streams: each call, bad use, followers in this process and in another's log, and many goroutines
// at once.

package inkstone

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// smallStreams opens streams with small files and sections.
func smallStreams(t testing.TB, path string) *Streams {
	t.Helper()
	streams := must[*Streams](t)(OpenStreams(path,
		sizes(WithSectionBytes(1<<16), WithSizeMultiple(2), WithCacheBytes(1<<16))...))
	t.Cleanup(func() { streams.Close() })
	return streams
}

func streamsReader(t testing.TB, reader *StreamsReader, err error) *StreamsReader {
	t.Helper()
	well(t, err)
	t.Cleanup(func() { reader.Close() })
	return reader
}

// about is what an error says of a stream.
func about(t testing.TB, err error) (stream, number uint64) {
	t.Helper()
	var failure Error
	if !errors.As(err, &failure) {
		t.Fatalf("%v is no Error", err)
	}
	stream, _ = failure.Stream()
	number, _ = failure.Number()
	return stream, number
}

func TestStreamsHaveEachChangeAndRefuseWhatCannotBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queues")
	streams := smallStreams(t, path)
	own, err := streams.Reader()
	own = streamsReader(t, own, err)
	beside, err := OpenStreamsReader(path)
	beside = streamsReader(t, beside, err)

	batch := new(Batch).Create(7, 1).Create(math.MaxUint64, 100).Create(0, 0)
	batch.Append(7, []byte("one")).Append(math.MaxUint64, []byte("other"))
	batch.AppendAt(7, 2, nil).Note(7, []byte("a vote"))
	numbers := must[[]uint64](t)(streams.ApplyDurable(background, batch))
	if !slices.Equal(numbers, []uint64{1, 100, 2}) {
		t.Fatal(numbers)
	}
	same(t, must[uint64](t)(streams.AppendDurable(background, 7, []byte("three"))), 3)
	for _, reader := range []*StreamsReader{own, beside} {
		same(t, string(must[[]byte](t)(reader.Get(7, 1, nil))), "one")
		same(t, string(must[[]byte](t)(reader.Note(7))), "a vote")
		same(t, len(must[[]byte](t)(reader.Note(0))), 0)
		first, next, err := reader.Bounds(math.MaxUint64)
		well(t, err)
		same(t, [2]uint64{first, next}, [2]uint64{100, 101})
		var ids []uint64
		for id, err := range reader.IDs() {
			well(t, err)
			ids = append(ids, id)
		}
		if !slices.Equal(ids, []uint64{0, 7, math.MaxUint64}) {
			t.Fatal(ids)
		}
		var all []string
		for record, err := range reader.Records(7, 1) {
			well(t, err)
			all = append(all, fmt.Sprintf("%d:%s", record.Number, record.Data))
		}
		same(t, fmt.Sprint(all), "[1:one 2: 3:three]")
	}

	_, _, err = streams.Append(8, []byte("x"))
	is(t, err, ErrNoStream)
	if stream, _ := about(t, err); stream != 8 {
		t.Fatal(err)
	}
	_, _, err = streams.Apply(batch.Clear().Append(7, []byte("x")).AppendAt(7, 9, []byte("x")))
	is(t, err, ErrOtherNumber)
	if stream, number := about(t, err); stream != 7 || number != 5 {
		t.Fatal(err)
	}
	_, _, err = streams.Apply(batch.Clear())
	is(t, err, ErrInvalid)
	_, _, err = streams.Apply(batch.Create(7, 1))
	is(t, err, ErrExists)
	_, _, err = streams.Apply(batch.Clear().Note(7, make([]byte, 4000)))
	is(t, err, ErrTooLarge)

	batch.Clear().TruncateBefore(7, 2).TruncateAfter(7, 2).Remove(0)
	must[[]uint64](t)(streams.ApplyDurable(background, batch))
	_, err = own.Get(7, 1, nil)
	is(t, err, ErrTruncatedBefore)
	if stream, number := about(t, err); stream != 7 || number != 2 {
		t.Fatal(err)
	}
	_, err = own.Get(7, 3, nil)
	is(t, err, ErrNotYet)
	batch.Clear().RestartAt(7, 50).Append(7, []byte("fifty"))
	must[[]uint64](t)(streams.ApplyDurable(background, batch))
	same(t, string(must[[]byte](t)(own.Get(7, 50, make([]byte, 10)))), "fifty")
	stats := must[StreamsStats](t)(streams.Stats())
	if stats.Streams != 2 || stats.LiveBytes == 0 || stats.LogBytes < stats.LiveBytes {
		t.Fatalf("%+v", stats)
	}
	if must[Stats](t)(streams.LogStats()).Groups == 0 {
		t.Fatal("the log has no groups")
	}

	_, err = OpenStreams(path)
	is(t, err, ErrLocked)
	_, p, err := streams.Append(7, []byte("before the end"))
	well(t, err)
	well(t, streams.Close())
	well(t, streams.Close())
	well(t, p.Wait(background))
	same(t, string(must[[]byte](t)(own.Get(7, 51, nil))), "before the end")
	_, _, err = streams.Append(7, nil)
	is(t, err, os.ErrClosed)
	is(t, streams.Sync(background), ErrClosed)
	well(t, own.Close())
	_, err = own.Get(7, 51, nil)
	is(t, err, ErrClosed)
	_, _, err = new(Streams).Append(7, nil)
	is(t, err, ErrClosed)

	_, err = Open(path)
	is(t, err, ErrOtherKind)
	plain := filepath.Join(t.TempDir(), "plain")
	log := small(t, plain)
	must[uint64](t)(log.AppendDurable(background, []byte("of somebody")))
	well(t, log.Close())
	_, err = OpenStreams(plain)
	is(t, err, ErrOtherKind)
	_, err = OpenStreamsReader(plain)
	is(t, err, ErrOtherKind)
	_, err = OpenStreamsReader(filepath.Join(plain, "none"))
	is(t, err, ErrNoLog)
}

func TestStreamsAreFollowedByManyWhileOthersWriteThem(t *testing.T) {
	const count, records = 8, 150
	path := filepath.Join(t.TempDir(), "queues")
	streams := smallStreams(t, path)
	batch := new(Batch)
	for stream := range uint64(count) {
		batch.Create(stream, 0)
	}
	must[[]uint64](t)(streams.ApplyDurable(background, batch))
	own, err := streams.Reader()
	own = streamsReader(t, own, err)
	beside, err := OpenStreamsReader(path)
	beside = streamsReader(t, beside, err)
	var group sync.WaitGroup
	for stream := range uint64(count) {
		group.Go(func() {
			for number := range uint64(records) {
				data := bytes.Repeat(binary.LittleEndian.AppendUint64(nil, number), 50)
				got, err := streams.AppendDurable(background, stream, data)
				if err != nil || got != number {
					t.Errorf("stream %d: record %d has number %d: %v", stream, number, got, err)
					return
				}
			}
		})
		for _, reader := range []*StreamsReader{own, beside} {
			group.Go(func() {
				want := uint64(0)
				for record, err := range reader.Follow(background, stream, 0) {
					if err != nil || record.Number != want || binary.LittleEndian.Uint64(record.Data) != want {
						t.Errorf("stream %d: record %d instead of %d: %v", stream, record.Number, want, err)
						return
					}
					if want++; want == records {
						return
					}
				}
			})
		}
	}
	group.Wait()
}

// What was durable before the end is shown, whenever that comes.
func TestACloseBetweenAppendsIsToldBehindTheLastRecord(t *testing.T) {
	for round := range 8 {
		streams := smallStreams(t, filepath.Join(t.TempDir(), "queues"))
		must[[]uint64](t)(streams.ApplyDurable(background, new(Batch).Create(0, 0).Create(1, 0)))
		own, err := streams.Reader()
		own = streamsReader(t, own, err)
		var group sync.WaitGroup
		for i := range 8 {
			stream := uint64(i % 2)
			group.Go(func() {
				for err := error(nil); err == nil; {
					_, err = streams.AppendDurable(background, stream, []byte("x"))
				}
			})
			group.Go(func() {
				shown := uint64(0)
				for _, err := range own.Follow(background, stream, 0) {
					if err == nil {
						shown++
						continue
					}
					if _, next, _ := own.Bounds(stream); !errors.Is(err, ErrClosed) || shown != next {
						t.Errorf("%v after %d records of %d", err, shown, next)
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		well(t, streams.Close())
		group.Wait()
	}
}

func TestAFollowerOfAStreamEndsWithItsContextTheStreamOrTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queues")
	streams := smallStreams(t, path)
	must[[]uint64](t)(streams.ApplyDurable(background, new(Batch).Create(1, 0).Create(2, 0)))
	own, err := streams.Reader()
	own = streamsReader(t, own, err)
	beside, err := OpenStreamsReader(path)
	beside = streamsReader(t, beside, err)
	end := func(ctx context.Context, reader *StreamsReader, stream uint64) <-chan error {
		ended := make(chan error, 1)
		go func() {
			for _, err := range reader.Follow(ctx, stream, 0) {
				if err != nil {
					ended <- err
				}
			}
		}()
		return ended
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	for _, reader := range []*StreamsReader{own, beside} {
		is(t, <-end(ctx, reader, 1), context.DeadlineExceeded)
		is(t, <-end(background, reader, 9), ErrNoStream)
	}
	first, second := end(background, own, 1), end(background, beside, 1)
	third := end(background, own, 2)
	time.Sleep(20 * time.Millisecond)
	must[[]uint64](t)(streams.ApplyDurable(background, new(Batch).Remove(1)))
	is(t, <-first, ErrNoStream)
	is(t, <-second, ErrNoStream)
	// A stream that is cut behind a follower, or that is another one with its id.
	for _, reader := range []*StreamsReader{own, beside} {
		for _, change := range []*Batch{
			new(Batch).TruncateAfter(3, 1),
			new(Batch).RestartAt(3, 2),
			new(Batch).Remove(3).Create(3, 2),
		} {
			two := new(Batch).Create(3, 1).Append(3, nil).Append(3, nil)
			must[[]uint64](t)(streams.ApplyDurable(background, two))
			cut := false
			for record, err := range reader.Follow(background, 3, 1) {
				if err != nil {
					is(t, err, ErrTruncatedAfter)
					if stream, number := about(t, err); stream != 3 || number != 2 {
						t.Fatal(err)
					}
					cut = true
				} else if record.Number == 2 {
					must[[]uint64](t)(streams.ApplyDurable(background, change.Append(3, nil).Append(3, nil)))
				}
			}
			if !cut {
				t.Fatal("the follower was told nothing")
			}
			must[[]uint64](t)(streams.ApplyDurable(background, new(Batch).Remove(3)))
		}
	}
	must[uint64](t)(streams.AppendDurable(background, 2, []byte("last")))
	well(t, streams.Close())
	is(t, <-third, ErrClosed)
	for record, err := range own.Records(2, 0) {
		well(t, err)
		same(t, string(record.Data), "last")
	}
}
