package profile

import (
	"fmt"
	"slices"
)

// parseStart and parseStop read the name of an interface. One that has neither
// is started: a profile names an interface because it is wanted.
func parseStart(p *parser) { p.startStop(&p.cfg.Started, &p.cfg.Stopped) }
func parseStop(p *parser)  { p.startStop(&p.cfg.Stopped, &p.cfg.Started) }

func (p *parser) startStop(into, outOf *[]string) {
	where := p.peek()
	name, ok := p.name("the interface's name", nameMax)
	if !ok {
		return
	}
	if !p.known.has(name) {
		p.notDefined(where, name)
	}
	*outOf = slices.DeleteFunc(*outOf, func(n string) bool { return n == name })
	if !slices.Contains(*into, name) {
		*into = append(*into, name)
	}
}

// refused are statements of the original that xlane does not take, and what is
// used instead. They are known so that they end the statement before them.
func refused() []statement {
	const address = "write INTERFACE name DEFINE IPAQENET PORTNAME device IPADDR address"
	const routes = "write BEGINROUTES with a ROUTE for each"
	var out []statement
	for _, r := range []struct {
		word    keyword
		instead string
		end     keyword
	}{
		{"DEVICE", "write INTERFACE name DEFINE IPAQENET: the device's name becomes PORTNAME", ""},
		{"LINK", "write INTERFACE name DEFINE IPAQENET: the link's name becomes the interface's", ""},
		{"HOME", address, ""},
		{"PRIMARYINTERFACE", "leave it out: Linux chooses the source address by route", ""},
		{"BSDROUTINGPARMS", "write MTU on INTERFACE or ROUTE", "ENDBSDROUTINGPARMS"},
		{"GATEWAY", routes, ""},
		{"TRANSLATE", "use the host's neighbour table", ""},
		{"ARPAGE", "write IPCONFIG ARPTO, in seconds", ""},
		{"UDPCONFIG", "set net.core.rmem_default and net.core.wmem_default", ""},
		{"SOMAXCONN", "set net.core.somaxconn", ""},
		{"NETACCESS", "use nftables", "ENDNETACCESS"},
		{"IPSEC", "use nftables and the kernel's IPsec", "ENDIPSEC"},
		{"SRCIP", "write SOURCEVIPAINTERFACE on INTERFACE", "ENDSRCIP"},
		{"DEFADDRTABLE", "use the host's address label table", "ENDDEFADDRTABLE"},
		{"KEEPALIVEOPTIONS", "write TCPCONFIG INTERVAL", "ENDKEEPALIVEOPTIONS"},
		{"SMFCONFIG", "scrape the daemon's metrics", ""},
		{"SACONFIG", "scrape the daemon's metrics", ""},
		{"NETMONITOR", "read the daemon's socket", ""},
		{"ITRACE", "run the daemon with --verbose", ""},
		{"OSAENTA", "write PKTTRACE", ""},
		{"DATASETPREFIX", "leave it out: files are named by path", ""},
	} {
		out = append(out, statement{word: r.word, page: "refused", linux: r.instead, parse: func(p *parser) {
			open := p.last()
			p.errorf(nil, "", fmt.Sprintf("xlane has no %s statement", r.word.full()), r.instead)
			if p.end = r.end; r.end == "" || !p.endAhead(open) {
				p.skip()
				return
			}
			for t := p.next(); !r.end.is(t.word); t = p.next() {
			}
			p.begin(p.last(), r.end, roleEnd)
		}})
	}
	return out
}
