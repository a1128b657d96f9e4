package main

import (
	"fmt"
	"hash/maphash"

	"github.com/anishathalye/porcupine"
)

// The value of one key: absent, or pieces, each with a line feed behind it. A put leaves one piece,
// an append adds one, also to a key that is absent.
type value struct {
	there bool
	bytes string
}

var seed = maphash.MakeSeed()

// A list of pieces for each key. Keys do not know each other, so each is judged alone.
var model = porcupine.Model{
	Partition: byKey,
	Init:      func() interface{} { return value{} },
	Step:      step,
	Hash: func(state interface{}) uint64 {
		return maphash.String(seed, state.(value).bytes)
	},
	DescribeOperation: describe,
	DescribeState: func(state interface{}) string {
		return state.(value).String()
	},
}

func step(state, input, output interface{}) (bool, interface{}) {
	now, asked, heard := state.(value), input.(request), output.(answer)
	switch asked.call {
	case "put":
		return true, value{true, asked.value + "\n"}
	case "append":
		return true, value{true, now.bytes + asked.value + "\n"}
	default:
		if heard.found == nil {
			return !now.there, now
		}
		return now.there && now.bytes == *heard.found, now
	}
}

func byKey(operations []porcupine.Operation) [][]porcupine.Operation {
	place := map[string]int{}
	var parts [][]porcupine.Operation
	for _, operation := range operations {
		key := operation.Input.(request).key
		at, known := place[key]
		if !known {
			at = len(parts)
			place[key] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], operation)
	}
	return parts
}

func (v value) String() string {
	if !v.there {
		return "nothing"
	}
	return short(v.bytes)
}

// Both ends of a long value: in a list the last pieces say the most.
func short(text string) string {
	if len(text) > 120 {
		return fmt.Sprintf("%q ... %q (%d bytes)", text[:40], text[len(text)-60:], len(text))
	}
	return fmt.Sprintf("%q", text)
}

func describe(input, output interface{}) string {
	asked, heard := input.(request), output.(answer)
	switch {
	case asked.call == "get" && heard.found == nil:
		return fmt.Sprintf("get %s: nothing", asked.key)
	case asked.call == "get":
		return fmt.Sprintf("get %s: %s", asked.key, short(*heard.found))
	case heard.open:
		return fmt.Sprintf("%s %s %q: never answered", asked.call, asked.key, asked.value)
	}
	return fmt.Sprintf("%s %s %q", asked.call, asked.key, asked.value)
}
