package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A line for each operation: "CLIENT CALL KEY VALUE|FOUND FROM TO OUTCOME"; "-" is nothing, TO "-"
// is no answer. "," is a line feed.
func lines(t *testing.T, operations ...string) string {
	t.Helper()
	var text strings.Builder
	for number, operation := range operations {
		var client, from int
		var call, key, word, to, outcome string
		if _, err := fmt.Sscan(operation, &client, &call, &key, &word, &from, &to, &outcome); err != nil {
			t.Fatalf("%q: %v", operation, err)
		}
		word = strings.ReplaceAll(word, ",", "\\n")
		asked, found := word, "null"
		if call == "get" {
			asked = ""
			if word != "-" {
				found = fmt.Sprintf("%q", strings.ReplaceAll(word, "\\n", "\n"))
			}
		}
		fmt.Fprintf(&text, `{"event":"invoke","operation":%d,"client":%d,"at_ns":%d,`+
			`"call":%q,"key":%q,"value":"%s"}`+"\n",
			number, client, from, call, key, asked)
		if to != "-" {
			fmt.Fprintf(&text, `{"event":"complete","operation":%d,"client":%d,"at_ns":%s,`+
				`"outcome":%q,"found":%s}`+"\n",
				number, client, to, outcome, found)
		}
	}
	return text.String()
}

func verdict(t *testing.T, text string) (int, string) {
	t.Helper()
	directory := t.TempDir()
	path, picture := filepath.Join(directory, "history"), filepath.Join(directory, "picture.html")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _ := check(path, picture, 10*time.Second)
	drawn, _ := os.ReadFile(picture)
	return code, string(drawn)
}

func TestHistories(t *testing.T) {
	for _, test := range []struct {
		name       string
		code       int
		operations []string
	}{
		{"one after the other", sound, []string{
			"0 get a - 0 1 done", "0 put a x 2 3 done", "1 append a y 4 5 done", "1 get a x,y, 6 7 done",
		}},
		{"an append makes a key", sound, []string{"0 append a x 0 1 done", "0 get a x, 2 3 done"}},
		{"two at once, in either order", sound, []string{
			"0 append a x 0 10 done", "1 append a y 0 10 done", "0 get a y,x, 11 12 done",
		}},
		{"keys do not know each other", sound, []string{
			"0 put a x 0 1 done", "0 put b y 2 3 done", "0 get a x, 4 5 done", "0 get b y, 6 7 done",
		}},
		{"what is unknown may have happened", sound, []string{
			"0 put a x 0 1 done", "1 put a y 2 9 unknown", "0 get a y, 10 11 done",
		}},
		{"what is unknown may happen late", sound, []string{
			"0 put a x 0 1 done", "1 put a y 2 3 unknown", "0 get a x, 10 11 done", "0 get a y, 12 13 done",
		}},
		{"what is unknown may never happen", sound, []string{
			"0 put a x 0 1 done", "1 put a y 2 3 unknown", "0 get a x, 10 11 done",
		}},
		{"what was never answered is unknown", sound, []string{
			"0 put a x 0 1 done", "1 append a y 2 - -", "0 get a x, 3 4 done", "0 get a x,y, 5 6 done",
		}},
		{"an unanswered read says nothing", sound, []string{
			"0 put a x 0 1 done", "1 get a z 2 3 unknown",
		}},
		{"a lost update", broken, []string{
			"0 put a x 0 1 done", "0 put a y 2 3 done", "1 get a x, 4 5 done",
		}},
		{"an acknowledged append is gone", broken, []string{
			"0 append a x 0 1 done", "0 append a y 2 3 done", "1 get a x, 4 5 done",
		}},
		{"all is gone", broken, []string{"0 put a x 0 1 done", "1 get a - 2 3 done"}},
		{"a stale read", broken, []string{
			"0 put a x 0 1 done", "0 put a y 2 9 done", "1 get a y, 3 4 done", "2 get a x, 5 6 done",
		}},
		{"an append twice", broken, []string{"0 append a x 0 1 done", "1 get a x,x, 2 3 done"}},
		{"an unknown append twice", broken, []string{
			"0 put a - 0 1 done", "0 append a x 2 3 unknown", "1 get a -,x,x, 4 5 done",
		}},
		{"what is unknown happens once: it is not taken back", broken, []string{
			"0 put a x 0 1 done", "1 put a y 2 3 unknown", "0 get a y, 4 5 done", "0 get a x, 6 7 done",
		}},
		{"what certainly did not happen is shown", broken, []string{
			"0 put a x 0 1 done", "1 put a y 2 3 not-done", "0 get a y, 4 5 done",
		}},
		{"what is seen before it was asked", broken, []string{
			"0 get a y, 0 1 done", "1 put a y 2 3 done",
		}},
		{"what nobody has written", broken, []string{"0 put a x 0 1 done", "0 get a z, 2 3 done"}},
		{"no answer at all", unusable, []string{"0 get a x 0 - -"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, picture := verdict(t, lines(t, test.operations...))
			if code != test.code {
				t.Errorf("exit code %d, expected %d", code, test.code)
			}
			if drawn := strings.Contains(picture, "<html"); drawn != (code == broken) {
				t.Errorf("exit code %d, drawn: %v", code, drawn)
			}
		})
	}
}

func TestLinesThatAreNoHistory(t *testing.T) {
	ask := `{"event":"invoke","operation":1,"client":0,"at_ns":5,` +
		`"call":"put","key":"a","value":"x"}` + "\n"
	for _, text := range []string{
		"", "no json\n", ask + ask,
		strings.Replace(ask, "put", "cas", 1),
		strings.Replace(ask, "invoke", "begin", 1),
		`{"event":"complete","operation":1,"at_ns":5,"outcome":"done"}` + "\n",
		ask + `{"event":"complete","operation":1,"at_ns":4,"outcome":"done"}` + "\n",
		ask + `{"event":"complete","operation":1,"at_ns":6,"outcome":"perhaps"}` + "\n",
	} {
		if code, _ := verdict(t, text); code != unusable {
			t.Errorf("exit code %d of %q", code, text)
		}
	}
}

func TestTime(t *testing.T) {
	// Many open writes of one key and a read that none of their orders explains: more orders than can
	// be tried.
	operations := []string{"0 put a - 0 1 done"}
	for number := range 40 {
		operations = append(operations, fmt.Sprintf("%d append a w%d 2 3 unknown", number, number))
	}
	operations = append(operations, "0 get a z 4 5 done")
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte(lines(t, operations...)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := check(path, "", 200*time.Millisecond); code != undecided {
		t.Errorf("exit code %d", code)
	}
}
