// Checks that a history of the torture run is linearizable, by porcupine.
//
//	checker [-picture FILE] [-time 60s] HISTORY
//
// It prints one line of JSON. Exit codes: 0 linearizable, 1 not, 2 no history, 3 no answer within
// the time.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	sound     = 0
	broken    = 1
	unusable  = 2
	undecided = 3
)

// What is printed.
type result struct {
	Verdict    string `json:"verdict"`
	Operations int    `json:"operations"`
	Open       int    `json:"open"`
	NotDone    int    `json:"not_done"`
	Keys       int    `json:"keys"`
	Picture    string `json:"picture,omitempty"`
}

func main() {
	picture := flag.String("picture", "", "where a history that is not linearizable is drawn (HTML)")
	limit := flag.Duration("time", time.Minute, "how long it may take")
	flag.Parse()
	if flag.NArg() != 1 || *limit <= 0 {
		fmt.Fprintln(os.Stderr, "checker: name one history; -time is more than nothing")
		os.Exit(unusable)
	}
	code, err := check(flag.Arg(0), *picture, *limit)
	if err != nil {
		fmt.Fprintf(os.Stderr, "checker: %s: %v\n", flag.Arg(0), err)
	}
	os.Exit(code)
}

func check(path, picture string, limit time.Duration) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return unusable, err
	}
	defer file.Close()
	history, err := readHistory(file)
	if err != nil {
		return unusable, err
	}
	said := result{
		Operations: len(history.operations),
		Open:       history.open,
		NotDone:    history.notDone,
		Keys:       len(byKey(history.operations)),
	}
	code := sound
	verdict, info := porcupine.CheckOperationsVerbose(model, history.operations, limit)
	switch verdict {
	case porcupine.Ok:
		said.Verdict = "linearizable"
	case porcupine.Illegal:
		said.Verdict, code = "not linearizable", broken
		if picture != "" {
			if err := porcupine.VisualizePath(model, info, picture); err != nil {
				fmt.Fprintf(os.Stderr, "checker: no picture: %v\n", err)
			} else {
				said.Picture = picture
			}
		}
	default:
		said.Verdict, code = "no answer within the time", undecided
	}
	return code, json.NewEncoder(os.Stdout).Encode(said)
}
