// Pairs: each way runs a short slice in turn, many times, and the slices of one turn are compared with one another.

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// way is one of those that are compared. slice runs it for a moment and gives its rate.
type way struct {
	name  string
	slice func() (float64, error)
}

// compare runs all ways in turns and prints the median rates, and the ratio of the first to the best of the others: the median of the turns,
// and between which ratios it lies with 95% confidence. A turn before the first warms up.
func compare(load string, ways []way) error {
	rates := make([][]float64, len(ways))
	for turn := range turns + 1 {
		for i := range ways {
			n := i
			if turn%2 == 1 {
				n = len(ways) - 1 - i
			}
			rate, err := ways[n].slice()
			if err != nil {
				return fmt.Errorf("%s, %s: %w", load, ways[n].name, err)
			}
			if turn > 0 {
				rates[n] = append(rates[n], rate)
			}
		}
	}
	best := 1
	var said []string
	for n, way := range ways {
		if n > 0 && median(rates[n]) > median(rates[best]) {
			best = n
		}
		said = append(said, fmt.Sprintf("%s %.0f", way.name, median(rates[n])))
	}
	ratios := make([]float64, turns)
	for turn := range ratios {
		ratios[turn] = rates[0][turn] / rates[best][turn]
	}
	low, high := interval(ratios)
	fmt.Printf("%-44s %.2f [%.2f..%.2f] of %s   (%s; %d turns)\n", load, median(ratios), low, high, ways[best].name, strings.Join(said, ", "), turns)
	return nil
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// interval has the order statistics that enclose the median with 95% confidence.
func interval(all []float64) (low, high float64) {
	all = slices.Sorted(slices.Values(all))
	count, half := float64(len(all)), 0.98*math.Sqrt(float64(len(all)))
	at := func(place float64) float64 { return all[min(max(int(place), 0), len(all)-1)] }
	return at(count/2 - half), at(math.Ceil(count/2 + half))
}
