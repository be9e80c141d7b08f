package profile

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// routesMax bounds the static routes of a profile.
const routesMax = 4096

// decimalMax is the longest number with a fraction that is read.
const decimalMax = 16

func parseRoutes(p *parser) {
	if p.cfg.Routes == nil {
		p.cfg.Routes = &Routes{}
	}
	p.block("ENDROUTES", routeEntries())
}

func routeEntries() []entry { return []entry{{"ROUTE", parseRoute}} }

func newRoute() Route {
	return Route{MaximumRetransmitTime: "120", MinimumRetransmitTime: ".5", RoundTripGain: ".125", VarianceGain: ".25", VarianceMultiplier: "2.0", DelayAcks: true}
}

// parseRoute reads destination, gateway, interface and MTU in this order, then
// the options in any.
func parseRoute(p *parser) {
	at := p.last()
	r := newRoute()
	v, isDefault, ok := p.destination(&r)
	if !ok || !p.gateway(&r, v, isDefault) {
		p.skip()
		return
	}
	where := p.peek()
	name, ok := p.name("the interface's name", nameMax)
	if !ok {
		p.skip()
		return
	}
	r.Interface = name
	if !p.known.has(name) {
		p.notDefined(where, name)
	}
	if p.optional("MTU") == "" {
		p.errorf(at, "", "MTU is missing", "write MTU DEFAULTSIZE, or MTU and a number, after the interface")
	} else {
		p.routeMTU(&r, v)
	}
	operands(p, routeTable(), &r)
	if len(p.cfg.Routes.Routes) == routesMax {
		p.errorf(at, "", fmt.Sprintf("more than %d routes", routesMax), "use a routing daemon")
	}
	p.cfg.Routes.Routes = append(p.cfg.Routes.Routes, r)
}

// destination reads a/n, a and a mask, a HOST, DEFAULT or DEFAULT6.
func (p *parser) destination(r *Route) (v version, isDefault, ok bool) {
	switch p.optional("DEFAULT", "DEFAULT6") {
	case "DEFAULT":
		r.Dest = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		return v4, true, true
	case "DEFAULT6":
		r.Dest = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		return v6, true, true
	}
	t := p.peek()
	text := ""
	if t != nil {
		text = t.text
	}
	address, length, hasLength := strings.Cut(text, "/")
	if !hasLength {
		a, ok := p.address("the destination", anyVersion)
		if !ok {
			return 0, false, false
		}
		bits := a.BitLen()
		if p.optional("HOST") == "" {
			if a.Is6() {
				p.errorf(t, "", fmt.Sprintf("destination %v has no prefix length", a), "write "+address+"/n, or HOST after it")
				return 0, false, false
			}
			if bits, ok = p.mask("the destination's mask"); !ok {
				return 0, false, false
			}
		}
		return p.setDestination(r, t, a, bits)
	}
	p.next()
	a, err := parseAddr(address)
	n, err2 := strconv.ParseUint(length, 10, 8)
	if err != nil || err2 != nil || int(n) > a.BitLen() {
		p.wrong(t, "the destination", "write an address, a slash and a prefix length")
		return 0, false, false
	}
	return p.setDestination(r, t, a, int(n))
}

func (p *parser) setDestination(r *Route, t *token, a netip.Addr, bits int) (version, bool, bool) {
	r.Dest = netip.PrefixFrom(a, bits)
	if r.Dest.Masked() != r.Dest {
		p.errorf(t, "", fmt.Sprintf("destination %v has bits beyond its prefix", r.Dest), "write "+r.Dest.Masked().String())
	}
	if a.IsMulticast() {
		p.errorf(t, "", fmt.Sprintf("destination %v is multicast", a), "use a unicast destination")
	}
	if a.Is4() {
		return v4, false, true
	}
	return v6, false, true
}

// gateway reads the first hop, or = for a direct route.
func (p *parser) gateway(r *Route, v version, isDefault bool) bool {
	if p.optional("=") != "" {
		if isDefault {
			p.errorf(nil, "", "= cannot be the gateway of a default route", "write the router's address")
		}
		return true
	}
	a, ok := p.address("the gateway", v)
	if !ok {
		return false
	}
	r.Gateway = a
	p.hostAddress(a)
	if name, own := p.own[a]; own {
		p.errorf(nil, "", fmt.Sprintf("gateway %v is an address of this host (%s)", a, name), "write the router's address, or = for a direct route")
	}
	return true
}

func (p *parser) routeMTU(r *Route, v version) {
	if p.optional("DEFAULTSIZE") != "" {
		return
	}
	lo := uint64(mtu4Min)
	if v == v6 {
		lo = mtu6Min
	}
	if n, ok := p.number("MTU", lo, portMax, "bytes, or DEFAULTSIZE"); ok {
		r.MTU = n
	}
}

func routeTable() []operand[Route] {
	decimals := func(word keyword, lo, hi float64, unit string, field func(*Route) *string, linux string) operand[Route] {
		want := strings.TrimRight(fmt.Sprintf("%v to %v %s", lo, hi, unit), " ")
		return operand[Route]{word: word, values: want, linux: linux,
			take: func(p *parser, r *Route) {
				t, ok := p.value(word.full(), want)
				if !ok {
					return
				}
				n, err := strconv.ParseFloat(t.text, 64)
				if err != nil || !(n >= lo && n <= hi) || len(t.text) > decimalMax || strings.Trim(t.text, "0123456789.") != "" {
					p.wrong(t, word.full(), "use "+want)
					return
				}
				*field(r) = t.text
			},
			show: func(r *Route) string { return word.full() + " " + *field(r) }}
	}
	t := flag("REPLACEABLE", "NOREPLACEABLE", func(r *Route) *bool { return &r.Replaceable }, inEffect, "a routing daemon may replace the route")
	t = append(t,
		decimals("MAXIMUMRETRANSMITTIME", 0, retransmitMax, "seconds", func(r *Route) *string { return &r.MaximumRetransmitTime }, "rto_max of the route"),
		decimals("MINIMUMRETRANSMITTIME", 0, 99.99, "seconds", func(r *Route) *string { return &r.MinimumRetransmitTime }, "rto_min of the route"),
		decimals("ROUNDTRIPGAIN", 0, 1, "", func(r *Route) *string { return &r.RoundTripGain }, "nothing: Linux uses 1/8"),
		decimals("VARIANCEGAIN", 0, 1, "", func(r *Route) *string { return &r.VarianceGain }, "nothing: Linux uses 1/4"),
		decimals("VARIANCEMULTIPLIER", 0, 99.99, "", func(r *Route) *string { return &r.VarianceMultiplier }, "nothing: Linux uses 4"))
	return append(t, flag("DELAYAcks", "NODELAYAcks", func(r *Route) *bool { return &r.DelayAcks }, inEffect, "quickack of the route")...)
}
