package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/anishathalye/porcupine"
)

// An event is a line of a history: what a client asked, or what it heard.
type event struct {
	// "invoke" or "complete".
	Event string `json:"event"`
	// Which operation: unique in a history.
	Operation int `json:"operation"`
	Client    int `json:"client"`
	// Nanoseconds of one monotonic clock.
	At int64 `json:"at_ns"`
	// "put", "append" or "get" (invoke only).
	Call string `json:"call"`
	Key  string `json:"key"`
	// What is put or appended (invoke only).
	Value string `json:"value"`
	// "done", "not-done" or "unknown" (complete only).
	Outcome string `json:"outcome"`
	// What a get has found: null, or the value (complete only).
	Found *string `json:"found"`
}

// What the model is asked for.
type request struct {
	call, key, value string
}

// What the client heard. Nothing is known of an operation that is open.
type answer struct {
	open  bool
	found *string
}

// A history and what is left out of the check.
type history struct {
	operations []porcupine.Operation
	// Writes whose outcome nobody knows: they may happen at any time after their call, or never.
	open int
	// Writes that certainly did not happen: a read that shows one has no explanation then.
	notDone int
}

// readHistory pairs what was asked with what was heard. A write that was never answered stays open
// for ever; a read that was not answered says nothing.
func readHistory(input io.Reader) (*history, error) {
	asked := map[int]event{}
	answered := map[int]bool{}
	var order []int
	done := map[int]event{}
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 1<<16), 1<<26)
	number := 0
	for lines.Scan() {
		number++
		if len(lines.Bytes()) == 0 {
			continue
		}
		var line event
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if err := take(line, asked, done, answered, &order); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return pair(order, asked, done)
}

func take(line event, asked, done map[int]event, answered map[int]bool, order *[]int) error {
	call, known := asked[line.Operation]
	switch line.Event {
	case "invoke":
		if known {
			return fmt.Errorf("operation %d is asked twice", line.Operation)
		}
		if line.Call != "put" && line.Call != "append" && line.Call != "get" {
			return fmt.Errorf("no such call: %q", line.Call)
		}
		asked[line.Operation] = line
		*order = append(*order, line.Operation)
	case "complete":
		if !known || answered[line.Operation] {
			return fmt.Errorf("operation %d is answered and not open", line.Operation)
		}
		if line.At < call.At {
			return fmt.Errorf("operation %d is answered before it was asked", line.Operation)
		}
		if line.Outcome != "done" && line.Outcome != "not-done" && line.Outcome != "unknown" {
			return fmt.Errorf("no such outcome: %q", line.Outcome)
		}
		answered[line.Operation] = true
		done[line.Operation] = line
	default:
		return fmt.Errorf("no such event: %q", line.Event)
	}
	return nil
}

func pair(order []int, asked, done map[int]event) (*history, error) {
	found := &history{}
	for _, number := range order {
		call := asked[number]
		heard, ended := done[number]
		operation := porcupine.Operation{
			ClientId: call.Client,
			Input:    request{call.Call, call.Key, call.Value},
			Call:     call.At,
			Return:   heard.At,
			Output:   answer{found: heard.Found},
		}
		switch {
		case ended && heard.Outcome == "done":
		case ended && heard.Outcome == "not-done":
			found.notDone++
			continue
		case call.Call == "get":
			continue
		default:
			found.open++
			operation.Return = math.MaxInt64
			operation.Output = answer{open: true}
		}
		found.operations = append(found.operations, operation)
	}
	if len(found.operations) == 0 {
		return nil, errors.New("no operation was answered, so nothing can be judged")
	}
	return found, nil
}
