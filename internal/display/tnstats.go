package display

import (
	"fmt"
	"strings"

	"xlane/internal/model"
)

// TNCounter is one counter of TNSTATS: what the original calls it, and what it
// counts here. The table of them is the reference page for the report.
type TNCounter struct {
	// Message is the original's message number.
	Message string
	// Overflow and Name are the pair of words: Overflow counts how often Name
	// has passed 2^32, so that the total is Overflow * 2^32 + Name.
	Overflow, Name string
	// PrimaryOnly counters belong to the device: they are shown under RD/1 alone
	// and sum all queues.
	PrimaryOnly bool
	// Linux says what is counted here; "" means nothing is, and *NA* is shown.
	Linux string

	read func(model.QueueCounters) model.Count
}

// tnCounters is in the original's order for a read queue.
var tnCounters = []TNCounter{
	{Message: "IST1719I", Overflow: "PCIREALO", Name: "PCIREAL", PrimaryOnly: true,
		Linux: "times the threads of all queues were woken to deliver: a wake-up stands for an interrupt",
		read:  func(c model.QueueCounters) model.Count { return c.ThreadWakes }},
	{Message: "IST1720I", Overflow: "PCIVIRTO", Name: "PCIVIRT", PrimaryOnly: true},
	{Message: "IST1750I", Overflow: "PCITHRSO", Name: "PCITHRSH", PrimaryOnly: true},
	{Message: "IST1751I", Overflow: "PCIUNPRO", Name: "PCIUNPRD", PrimaryOnly: true},
	{Message: "IST2316I", Overflow: "EARLYINO", Name: "EARLYINT", PrimaryOnly: true},
	{Message: "IST2317I", Overflow: "ULPRETUO", Name: "ULPRETU", PrimaryOnly: true},
	{Message: "IST1752I", Overflow: "RPROCDEO", Name: "RPROCDEF", PrimaryOnly: true},
	{Message: "IST1753I", Overflow: "RREPLDEO", Name: "RREPLDEF", PrimaryOnly: true},
	{Message: "IST1754I", Overflow: "NOREADSO", Name: "NOREADS",
		Linux: "packets lost because the queue's ring had no free entry",
		read:  func(c model.QueueCounters) model.Count { return c.RingDrops }},
	{Message: "IST1721I", Overflow: "SBALCNTO", Name: "SBALCNT",
		Linux: "polls that handed at least one packet to the stack: a batch stands for a storage block",
		read:  func(c model.QueueCounters) model.Count { return c.Deliveries }},
	{Message: "IST1722I", Overflow: "PACKCNTO", Name: "PACKCNT",
		Linux: "packets that the sorter put on the queue",
		read:  func(c model.QueueCounters) model.Count { return model.Known(c.Packets) }},
	{Message: "IST2185I", Overflow: "FRINVCTO", Name: "FRINVCT"},
	{Message: "IST1236I", Overflow: "BYTECNTO", Name: "BYTECNT",
		Linux: "bytes of those packets, with their Ethernet headers",
		read:  func(c model.QueueCounters) model.Count { return model.Known(c.Bytes) }},
	{Message: "IST1810I", Overflow: "PKTIQDO", Name: "PKTIQD"},
	{Message: "IST1811I", Overflow: "BYTIQDO", Name: "BYTIQD"},
}

// TNCounters returns the table of counters, in the order they are shown.
func TNCounters() []TNCounter { return append([]TNCounter(nil), tnCounters...) }

// TNStats draws TNSTATS: a group per interface that the filter keeps, in it a
// subgroup per inbound queue. No interface gives "".
func TNStats(s model.Snapshot, f Filter) string {
	var out sheet
	for _, in := range f.chosen(s) {
		// The original's clock: hhmmss and hundredths; the year's last two
		// digits and the day of the year.
		clock := s.Taken.Format("150405") + fmt.Sprintf("%02d", s.Taken.Nanosecond()/10_000_000)
		day := fmt.Sprintf("%02d%03d", s.Taken.Year()%100, s.Taken.YearDay())
		out.line("IST1230I TIME     = %-10s DATE     = %-10s ID  = %s", clock, day, in.Device)
		for _, q := range in.Queues {
			out.tnQueue(in, q)
		}
		out.line("IST314I END")
	}
	return out.String()
}

func (s *sheet) tnQueue(in model.Interface, q model.Queue) {
	s.line("IST924I %s", strings.Repeat("-", 57))
	s.line("IST1233I DEV      = %-10s DIR      = %s%10s", plain(in.Device), nameOfQueue(q.ID), "("+q.ID.String()+")")
	for _, c := range tnCounters {
		if c.PrimaryOnly && q.ID != model.Primary {
			continue
		}
		var value model.Count
		switch {
		case c.read == nil:
		case c.PrimaryOnly:
			for _, other := range in.Queues {
				value = value.Add(c.read(other.Counters))
			}
		default:
			value = c.read(q.Counters)
		}
		high, low := na, na
		if value.Known {
			high, low = fmt.Sprint(value.N>>32), fmt.Sprint(value.N&0xffffffff)
		}
		s.tnPair(c.Message, c.Overflow, high, c.Name, low)
	}
	if q.Shares != 0 {
		s.line("XLANE    %s shares the hardware queue of %s", nameOfQueue(q.ID), nameOfQueue(q.Shares))
		return
	}
	// What the original does not have, in its form but without its overflow
	// words: these numbers are 64 bits wide.
	s.tnPair("XLANE", "HOLDUS", microseconds(q.Hold), "DEFERCNT", fmt.Sprint(q.DeferCount))
	s.tnPair("XLANE", "HWQUEUE", fmt.Sprint(q.Hardware), "RINGENT", numberOrNA(q.RingEntries))
	run := q.Counters.ThreadRun
	run.N /= 1000
	s.tnPair("XLANE", "THRUNUS", countOrNA(run), "THWAKES", countOrNA(q.Counters.ThreadWakes))
}

func (s *sheet) tnPair(message, first, firstValue, second, secondValue string) {
	s.line("%-8s %-8s = %10s %-8s = %10s", message, first, firstValue, second, secondValue)
}
