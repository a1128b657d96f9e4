// What the log says of itself: numbers, reports, errors.

package inkstone

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// members are the names that JSON has for a structure's fields.
func members(of reflect.Type) (names []string) {
	for field := range of.NumField() {
		names = append(names, of.Field(field).Tag.Get("json"))
	}
	slices.Sort(names)
	return names
}

func TestEveryNumberOfTheLibraryHasAField(t *testing.T) {
	path := t.TempDir()
	log := small(t, path)
	for range 10 {
		must[uint64](t)(log.AppendDurable(background, make([]byte, 100)))
	}
	stats := must[Stats](t)(log.Stats())
	same(t, stats.Records, 10)
	same(t, stats.RecordBytes, 1000)
	c := stats.Commit
	isOrdered := slices.IsSorted([]time.Duration{1, c.P50, c.P99, c.P999, c.Max})
	if c.Count < 10 || !isOrdered || c.Sum < c.Max/2 {
		t.Fatalf("%+v", c)
	}
	for _, side := range []struct {
		json string
		of   reflect.Type
	}{
		{must[string](t)(log.statsText()), reflect.TypeFor[Stats]()},
		{must[string](t)(verifyText(path)), reflect.TypeFor[Report]()},
	} {
		var all map[string]any
		well(t, json.Unmarshal([]byte(side.json), &all))
		same(t, strings.Join(slices.Sorted(maps.Keys(all)), " "), strings.Join(members(side.of), " "))
	}
}

// What several callers share is a pointer to what they cannot reach.
func TestErrorsCannotBeChanged(t *testing.T) {
	log := small(t, t.TempDir())
	reader := must[*Reader](t)(log.Reader())
	defer reader.Close()
	cursor := must[*Cursor](t)(reader.Cursor(1))
	defer cursor.Close()
	_, one := cursor.Next(nil)
	is(t, one, ErrNotYet)
	well(t, log.Close())
	_, closed := log.Append(nil)
	for _, err := range []error{one, closed, log.TruncateBefore(1)} {
		var details Error
		if !errors.As(err, &details) || details.Errno() != 0 || details.IsRetryable() != (err == one) {
			t.Fatalf("%+v", err)
		}
		if _, isKnown := details.Offset(); isKnown {
			t.Fatal("an offset of nothing")
		}
		kind := reflect.TypeOf(details).Elem()
		for field := range kind.NumField() {
			if kind.Field(field).IsExported() {
				t.Fatal("a caller can change", kind.Field(field).Name)
			}
		}
	}
}
