package sorter

import (
	"math/rand"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

// world plays the device and the host around the real programs: a FIFO for
// each queue, each emptied at its own random pace; what leaves a queue is first
// seen (prove), then processed, and between the two, when the queues have CPUs
// of their own, others may overtake. Every packet carries a number.
type world struct {
	r       *rig
	rnd     *rand.Rand
	sameCPU bool
	queues  map[model.QueueID][]sent
	seen    map[model.QueueID][]sent // proved, not yet processed
	flows   []*player
	moves   int
}

type sent struct {
	p      *player
	number int
	pkt    []byte
	end    uint32
}

// player is one connection of the world.
type player struct {
	c         *conn
	h         *host
	sent      int
	processed int
	mode      int // 0 chat, 1 stream, 2 stream with small acknowledgements
	asked     bool
	highest   uint32
	last      model.QueueID
}

func (w *world) send(p *player, payload int) {
	before := w.r.counters().Packets
	pkt := p.c.in(payload)
	w.enqueue(p, pkt, before)
}

func (w *world) enqueue(p *player, pkt []byte, before map[model.QueueID]uint64) {
	w.r.sort(pkt)
	after := w.r.counters().Packets
	for _, q := range model.AllQueues() {
		if after[q] != before[q] {
			p.sent++
			w.queues[q] = append(w.queues[q], sent{p, p.sent, pkt, p.c.seq})
			if p.last != 0 && p.last != q {
				w.moves++
			}
			p.last = q
		}
	}
}

// repeat sends the connection's last bytes again: they prove nothing new.
func (w *world) repeat(p *player) {
	before := w.r.counters().Packets
	again := *p.c
	if again.seq < 2000 {
		return
	}
	again.seq -= 500
	w.enqueue(p, again.in(500), before)
}

// pureACK sends a packet without payload.
func (w *world) pureACK(p *player) {
	before := w.r.counters().Packets
	w.enqueue(p, p.c.packet(true, &layers.TCP{Seq: p.c.seq, Ack: p.c.ack, ACK: true}, 0), before)
}

// step lets a queue hand over up to n packets.
func (w *world) step(q model.QueueID, n int) {
	for ; n > 0 && len(w.queues[q]) > 0; n-- {
		s := w.queues[q][0]
		w.queues[q] = w.queues[q][1:]
		w.r.prove(s.pkt)
		if w.sameCPU {
			w.process(s)
		} else {
			w.seen[q] = append(w.seen[q], s)
		}
	}
}

// finish lets a queue's CPU process what it has seen.
func (w *world) finish(q model.QueueID) {
	for _, s := range w.seen[q] {
		w.process(s)
	}
	w.seen[q] = nil
}

func (w *world) process(s sent) {
	if s.number != s.p.processed+1 {
		w.r.t.Fatalf("packet %d of %v was processed after packet %d: reordered", s.number, s.p.c.remote, s.p.processed)
	}
	s.p.processed = s.number
	if int32(s.end-s.p.highest) > 0 {
		s.p.highest = s.end
	}
	switch {
	case s.p.mode == 0 && s.p.asked && s.p.processed == s.p.sent:
		w.answer(s.p, 800)
		s.p.h.seen()
		s.p.asked = false
	case s.p.mode == 2 && w.rnd.Intn(20) == 0:
		w.answer(s.p, 40)
	case w.rnd.Intn(3) == 0:
		w.answer(s.p, 0)
	}
}

// answer sends n bytes from the host, which acknowledges what it has processed.
func (w *world) answer(p *player, n int) {
	w.r.turn(p.c.packet(false, &layers.TCP{Seq: p.h.end, Ack: p.highest, ACK: true}, n))
	p.h.end += uint32(n)
}

func (w *world) play(p *player) {
	if !p.asked && w.rnd.Intn(60) == 0 {
		p.mode = w.rnd.Intn(3)
	}
	switch p.mode {
	case 0:
		if !p.asked {
			w.send(p, 1+w.rnd.Intn(2*mss))
			p.asked = true
		}
	case 1:
		w.send(p, mss)
	case 2:
		w.send(p, mss)
		if w.rnd.Intn(30) == 0 {
			p.h.seen()
		}
	}
	switch w.rnd.Intn(12) {
	case 0:
		w.repeat(p)
	case 1:
		w.pureACK(p)
	}
}

// TestBPFOrderIsKeptWhateverTheQueuesDo: connections change between chatting
// and streaming and so between queues, the queues drain in bursts of any size
// at any time, packets are repeated, and never is one processed before another
// that was sent before it on the same connection.
func TestBPFOrderIsKeptWhateverTheQueuesDo(t *testing.T) {
	for name, sameCPU := range map[string]bool{"queues on one CPU": true, "queues on CPUs of their own": false} {
		t.Run(name, func(t *testing.T) {
			rnd := testenv.Rand(t)
			// A low threshold and no pause or guard within the test: only proof moves anybody.
			r := newRig(t, Config{ThresholdBytes: 20_000, ShortRunBytes: 10_000, Guard: 1 << 40, Pause: 1 << 40})
			r.s.config.SameCpu = boolByte(sameCPU)
			if err := r.s.putConfig(); err != nil {
				t.Fatal(err)
			}
			w := &world{r: r, rnd: rnd, sameCPU: sameCPU, queues: map[model.QueueID][]sent{}, seen: map[model.QueueID][]sent{}}
			for i := 0; i < 6; i++ {
				c := newConn(t, client4, server4)
				if i%2 == 1 {
					c = newConn(t, client6, server6)
				}
				c.seq = rnd.Uint32() // wraps for some
				if c.seq < 3000 {
					c.seq += 3000
				}
				c.remote = netipPort(c.remote, uint16(40000+i))
				w.flows = append(w.flows, &player{c: c, h: r.host(c), highest: c.seq, mode: rnd.Intn(3)})
			}
			queues := []model.QueueID{model.Primary, model.BulkData}
			for i := 0; i < 60_000; i++ {
				w.play(w.flows[rnd.Intn(len(w.flows))])
				q := queues[rnd.Intn(2)]
				if rnd.Intn(3) == 0 {
					w.step(q, rnd.Intn(40))
				}
				if rnd.Intn(4) == 0 {
					w.finish(queues[rnd.Intn(2)])
				}
				if rnd.Intn(50) == 0 { // a moment's peace, in which the host catches up
					for _, q := range queues {
						w.step(q, 1<<30)
						w.finish(q)
					}
					for _, p := range w.flows {
						w.answer(p, 0)
					}
				}
			}
			for _, q := range queues {
				w.step(q, 1<<30)
				w.finish(q)
			}
			for _, p := range w.flows {
				if p.processed != p.sent {
					t.Errorf("%v: %d packets sent, %d processed", p.c.remote, p.sent, p.processed)
				}
			}
			if w.moves < 50 {
				t.Errorf("only %d changes of queue: the test proves nothing", w.moves)
			}
			t.Logf("%d changes of queue, %v", w.moves, r.counters().Event)
		})
	}
}
