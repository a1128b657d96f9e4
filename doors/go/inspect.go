// What can be asked of a log that this process need not have open.

package inkstone

// #include "shim.h"
import "C"

import "encoding/json"

// Report is what Verify has found.
type Report struct {
	// Path is the log's directory.
	Path string `json:"path"`
	// IsIntact says whether nothing that was promised is damaged or missing.
	IsIntact bool `json:"intact"`
	// Verdict is what an opening would find: "end", "torn", "corrupt" or "unknown version", by the
	// row Row of docs/format.md.
	Verdict string `json:"verdict"`
	Row     string `json:"row"`
	// First is the first record that was not truncated, Last the last one that can be read, one
	// below First if there is none. Promise is the highest LSN that the files promise.
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Promise uint64 `json:"promise"`
	// IsClean says whether the log was closed, and nothing was written after that.
	IsClean bool `json:"clean"`
	// Writer is the process that has the log open for writing; "" if there is none, or it is not
	// known.
	Writer string `json:"writer"`
	// Records is how many records can be read, RecordBytes how many bytes they have, Segments and
	// OtherFiles how many files there are.
	Records     uint64 `json:"records"`
	RecordBytes uint64 `json:"record_bytes"`
	// Gaps are the records that an earlier salvage could not save. They are no damage.
	Gaps []Gap `json:"gaps"`
	// SavableRecords is how many records `inkstone salvage` would save; nil where none is needed.
	SavableRecords *uint64 `json:"savable_records"`
	Segments       int     `json:"segments"`
	OtherFiles     int     `json:"other_files"`
	// Damage is every damaged place that was found.
	Damage []Damage `json:"damage"`
	// Doubts is what the file system, or a sandbox, did not let it make sure of: a sentence each.
	Doubts []string `json:"doubts"`
}

// Gap is a run of lost records.
type Gap struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Damage is a damaged place: the byte Offset of the file Path. Segment and LSN are 0 where they are
// not known.
type Damage struct {
	Path    string   `json:"path"`
	Segment uint64   `json:"segment"`
	Offset  uint64   `json:"offset"`
	LSN     uint64   `json:"lsn"`
	Reason  string   `json:"reason"`
	Row     string   `json:"row"`
	Details []string `json:"details"`
}

// Verify reads the whole log in path, also beside a living writer, and reports every damaged place
// that can be found. Damage is not an error of this call. It writes nothing. Goroutines: any.
func Verify(path string) (report Report, err error) {
	t, err := verifyText(path)
	if err != nil {
		return report, err
	}
	err = json.Unmarshal([]byte(t), &report)
	return report, err
}

func verifyText(path string) (t string, err error) {
	err = withText(path, func(p *C.char) (err error) {
		t, err = text(C.go_verify(p))
		return err
	})
	return t, err
}

// Copy copies the records of the log in from into a new log in to, also beside a living writer;
// each keeps its LSN. It returns how many they are. A copy that fails removes its files.
// Goroutines: any.
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
