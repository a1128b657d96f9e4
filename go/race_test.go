//go:build race

package inkstone

const raceEnabled = true
