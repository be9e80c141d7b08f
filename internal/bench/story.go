package bench

import (
	"fmt"
	"strings"
)

// StoryText says in sentences what xlane did in the last run beside a stream.
func (r *Result) StoryText() []string {
	s := r.Story
	if s == nil {
		return nil
	}
	var out []string
	if s.FoundBytes > 0 {
		text := fmt.Sprintf("The stream was found, in the kernel and with no list of ports, after %s KB one-way", number(float64(s.FoundBytes)/1000))
		if s.MovedBytes >= s.FoundBytes {
			text += fmt.Sprintf(", and its packets went to BULKDATA from %s KB on, when those before them had left the primary queue", number(float64(s.MovedBytes)/1000))
		}
		out = append(out, text+".")
	}
	var queues []string
	for _, q := range s.Queues {
		if q.PacketsS < 1 {
			continue
		}
		text := fmt.Sprintf("%s %s packets/s in %s deliveries/s", q.Name, number(q.PacketsS), number(q.WakesS))
		if q.HoldUs > 0 {
			text += fmt.Sprintf(", held %s µs", number(q.HoldUs))
		} else {
			text += ", not held"
		}
		queues = append(queues, text)
	}
	if len(queues) > 0 {
		out = append(out, "By queue: "+strings.Join(queues, "; ")+".")
	}
	for _, d := range s.Decisions {
		out = append(out, "Last decision for "+d+".")
	}
	if s.Changes > 0 {
		out = append(out, fmt.Sprintf("%d settings of the host were changed for that, and all put back.", s.Changes))
	}
	return out
}
