package bench

import (
	"math"
	"slices"
)

// Spread is a sample's middle and how far it spreads: the median, the
// quartiles and the extremes. No mean: one disturbed round moves it.
type Spread struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf summarises a sample; false when it is empty.
func SpreadOf(values []float64) (Spread, bool) {
	if len(values) == 0 {
		return Spread{}, false
	}
	s := slices.Clone(values)
	slices.Sort(s)
	return Spread{
		N: len(s), Median: quantile(s, 0.5), Q1: quantile(s, 0.25), Q3: quantile(s, 0.75), Min: s[0], Max: s[len(s)-1],
	}, true
}

// quantile interpolates between the two nearest of sorted values, as R's type
// 7 and most tools do.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Ratio compares two cells round by round: neighbours in time share what
// disturbs the machine, so that the ratio within a round says more than the
// ratio of two medians. Rounds that either lacks are left out.
func Ratio(a *Cell, ma Metric, b *Cell, mb Metric) (Spread, bool) {
	if a == nil || b == nil {
		return Spread{}, false
	}
	base := map[int]float64{}
	for _, r := range b.Runs {
		if v, ok := mb.Of(r); ok && v > 0 {
			base[r.Round] = v
		}
	}
	var ratios []float64
	for _, r := range a.Runs {
		v, ok := ma.Of(r)
		if under, has := base[r.Round]; ok && has {
			ratios = append(ratios, v/under)
		}
	}
	return SpreadOf(ratios)
}
