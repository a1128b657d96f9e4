//go:build !race

package inkstone

const raceEnabled = false
