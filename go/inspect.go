// What can be asked of a log that this process need not have open.

package inkstone

// #include "shim.h"
import "C"

// Report is what Verify has found.
type Report struct {
	// IsIntact says whether nothing that was promised is damaged or missing.
	IsIntact bool
	// JSON has the details: verdict, first, last, records, segments, damage and others.
	JSON []byte
}

// Verify reads the whole log in path, also beside a living writer, and reports every damaged place that can be found. Damage is not an
// error of this call. It writes nothing. Goroutines: any.
func Verify(path string) (report Report, err error) {
	err = withText(path, func(p *C.char) error {
		r := C.go_verify(p)
		t, err := text(r)
		if err == nil {
			report = Report{IsIntact: bool(r.is_intact), JSON: []byte(t)}
		}
		return err
	})
	return report, err
}

// Copy copies the records of the log in from into a new log in to, also beside a living writer; each keeps its LSN. It returns how many
// they are. A copy that fails removes its files. Goroutines: any.
//
// Durable: the copy.
func Copy(from, to string, options ...Option) (records uint64, err error) {
	err = withOptions(options, func(s *settings) error {
		return withText(from, func(f *C.char) error {
			return withText(to, func(t *C.char) error {
				a := C.go_copy(f, t, s.c)
				records = uint64(a.number)
				return failed(a)
			})
		})
	})
	return records, err
}

// Version is the version of the C library that runs, such as "0.1.0".
func Version() string { return C.GoString(C.inkstone_version()) }
