// Whether the race detector runs, which allows fewer goroutines.

//go:build !race

package inkstone

const raceEnabled = false
