package busypoll

import (
	"net/netip"
	"sort"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/sockdiag"
)

// sock is one TCP connection of the namespace.
type sock struct {
	cookie uint64
	segs   uint32 // data segments received, as the kernel counts them (it wraps)
	recent uint32 // of these, since the last look
	bulk   bool
}

// table is all connections by inode, as one look saw them.
type table struct {
	socks     map[uint32]sock
	truncated bool
}

type pair struct{ local, remote netip.AddrPort }

func pairOf(local, remote netip.AddrPort) pair {
	return pair{
		netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port()),
		netip.AddrPortFrom(remote.Addr().Unmap().WithZone(""), remote.Port()),
	}
}

// readTable lists the connections, up to limit of them. was is what the look
// before saw, or nil.
func readTable(ns *netns.Handle, bulk func(func(local, remote netip.AddrPort) bool) error, was *table, limit int) (*table, error) {
	isBulk := map[pair]bool{}
	if bulk != nil {
		err := bulk(func(local, remote netip.AddrPort) bool {
			isBulk[pairOf(local, remote)] = true
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	t := &table{socks: map[uint32]sock{}}
	states := sockdiag.In(sockdiag.Established, sockdiag.CloseWait, sockdiag.FinWait1, sockdiag.FinWait2)
	err := sockdiag.TCP(ns, states, func(s sockdiag.Socket) error {
		if s.Inode == 0 { // no descriptor leads to it
			return nil
		}
		if len(t.socks) >= limit {
			t.truncated = true
			return sockdiag.ErrStop
		}
		one := sock{cookie: s.Cookie, segs: s.Info.DataSegmentsIn, bulk: isBulk[pairOf(s.Local, s.Remote)]}
		if was != nil {
			if old, ok := was.socks[s.Inode]; ok && old.cookie == s.Cookie {
				one.recent = one.segs - old.segs
			}
		}
		t.socks[s.Inode] = one
		return nil
	})
	return t, err
}

// busiest returns the inodes of up to n connections that received data since
// the last look and are not bulk, most first.
func (t *table) busiest(n int) []uint32 {
	var out []uint32
	for ino, s := range t.socks {
		if s.recent > 0 && !s.bulk {
			out = append(out, ino)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := t.socks[out[i]], t.socks[out[j]]
		if a.recent != b.recent {
			return a.recent > b.recent
		}
		return out[i] < out[j]
	})
	return out[:min(n, len(out))]
}
