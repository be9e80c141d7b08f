package profile

import (
	"fmt"
	"net/netip"
	"slices"
)

// statements is the language. A statement's page is in docs/reference.
func statements() []statement {
	const configs, others = "EZZ0707I", "EZZ0356I"
	return append([]statement{
		{word: "INTERFace", page: "interface", exclusive: others, parse: parseInterface,
			linux: "a device that xlane manages"},
		{word: "GLOBALCONFig", page: "globalconfig", exclusive: configs, effect: later, parse: parseGlobal,
			linux: "outbound queues, groups and their monitoring"},
		{word: "IPCONFig", page: "ipconfig", exclusive: configs, effect: later, parse: parseIP,
			linux: "settings of the namespace's IPv4"},
		{word: "IPCONFIG6", page: "ipconfig6", exclusive: configs, effect: later, parse: parseIP6,
			linux: "settings of the namespace's IPv6"},
		{word: "TCPCONFig", page: "tcpconfig", exclusive: configs, effect: later, parse: parseTCP,
			linux: "settings of the namespace's TCP"},
		{word: "VIPADYNAMIC", page: "vipadynamic", exclusive: others, effect: later, parse: parseVIPA,
			linux: "virtual addresses and distribution; TCP to distributed addresses goes to SYSDIST already"},
		{word: "PORT", page: "port", exclusive: others, effect: later, parse: parsePort,
			linux: "ports kept for programs"},
		{word: "PORTRange", page: "portrange", exclusive: others, effect: later, parse: parsePortRange,
			linux: "ranges of ports kept for programs"},
		{word: "BEGINRoutes", page: "beginroutes", exclusive: others, effect: later, parse: parseRoutes,
			linux: "static routes"},
		{word: "AUTOLOG", page: "autolog", exclusive: others, effect: later, parse: parseAutolog,
			linux: "programs that are started with the daemon"},
		{word: "PKTTRACE", page: "pkttrace", exclusive: others, effect: later, parse: parseTrace,
			linux: "packet traces"},
		{word: "START", page: "start", exclusive: others, parse: parseStart, linux: "the interface is managed"},
		{word: "STOP", page: "start", exclusive: others, parse: parseStop, linux: "the interface is left alone"},
	}, refused()...)
}

// blockEnds are the words that end a block.
var blockEnds = []keyword{"ENDVIPADYNAMIC", "ENDROUTES", "ENDAUTOLOG"}

// Parse reads and checks a profile. All that is wrong with it is in the
// messages, at most 100 errors and 100 warnings of them; with an error the
// configuration is nil, because a profile takes effect as a whole or not at all.
func Parse(src Source) (*Config, *Messages) {
	msgs := &Messages{List: []Message{}}
	p := newParser(load(src, msgs), msgs)
	for _, name := range src.Defined {
		p.known.add(fold(name))
	}
	p.parse()
	p.check()
	msgs.sort()
	if msgs.Errors > 0 {
		return nil, msgs
	}
	return p.cfg, msgs
}

func newParser(tokens []token, msgs *Messages) *parser {
	return &parser{tokens: tokens, msgs: msgs, statements: statements(), known: knownNames{}, own: map[netip.Addr]string{},
		cfg: &Config{Devices: []Device{}, Pending: []Pending{}}}
}

// knownNames are the interfaces and virtual addresses defined so far: names
// must be defined before they are referred to (zos.md §1.1).
type knownNames map[string]bool

func (k knownNames) add(name string)      { k[name] = true }
func (k knownNames) remove(name string)   { delete(k, name) }
func (k knownNames) has(name string) bool { return k[name] }

// notDefined says that a name refers to nothing.
func (p *parser) notDefined(t *token, name string) {
	var names []string
	if p.msgs.Errors < messagesMax {
		for n := range p.known {
			names = append(names, n)
		}
		slices.Sort(names)
	}
	instead := "write its INTERFACE statement above"
	if near := p.guess(name, names); near != "" {
		instead = "did you mean " + near + "?"
	}
	p.errorf(t, "", fmt.Sprintf("interface %s is not defined before", name), instead)
}
