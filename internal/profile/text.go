package profile

import (
	"fmt"
	"strings"
	"sync"
)

// Text returns the configuration as a profile with every default of its
// statements written out, then what is not in effect yet, as comments. Parsing
// it gives the same configuration.
func (c *Config) Text() string {
	w := &writer{}
	for i := range c.Devices {
		w.device(&c.Devices[i])
	}
	for _, n := range c.Deleted {
		w.line("INTERFACE " + plain(n) + " DELETE")
	}
	if c.Global != nil {
		w.statement("GLOBALCONFIG", shown(globalTable(), c.Global, newGlobal()))
	}
	if c.IP != nil {
		w.statement("IPCONFIG", shown(ipTable(), c.IP, newIP()))
	}
	if c.IP6 != nil {
		w.statement("IPCONFIG6", shown(ip6Table(), c.IP6, newIP6()))
	}
	if c.TCP != nil {
		w.statement("TCPCONFIG", shown(tcpTable(), c.TCP, newTCP()))
	}
	if c.VIPA != nil {
		w.vipa(c.VIPA)
	}
	for i := range c.Ports {
		w.port(&c.Ports[i])
	}
	if c.Routes != nil {
		w.line("BEGINROUTES")
		for i := range c.Routes.Routes {
			w.route(&c.Routes.Routes[i])
		}
		w.line("ENDROUTES")
	}
	if c.Autolog != nil {
		w.line(fmt.Sprintf("AUTOLOG %d", c.Autolog.WaitMin))
		for i := range c.Autolog.Programs {
			r := &c.Autolog.Programs[i]
			w.line("  " + strings.Join(append([]string{plain(r.Name)}, shown(procedureTable(), r, r)...), " "))
		}
		w.line("ENDAUTOLOG")
	}
	for i := range c.Traces {
		w.line("PKTTRACE " + strings.Join(shown(traceTable(), &c.Traces[i], &c.Traces[i]), " "))
	}
	for _, n := range c.Started {
		w.line("START " + plain(n))
	}
	for _, n := range c.Stopped {
		w.line("STOP " + plain(n))
	}
	for _, p := range c.Pending {
		w.line(fmt.Sprintf("; accepted, not in effect yet: %s (%s)", p.What, p.Why))
	}
	return w.b.String()
}

type writer struct{ b strings.Builder }

func (w *writer) line(s string) {
	w.b.WriteString(s)
	w.b.WriteByte('\n')
}

// statement writes a statement with one operand a line.
func (w *writer) statement(head string, operands []string) {
	w.line(head)
	for _, o := range operands {
		w.line("  " + o)
	}
}

func (w *writer) device(d *Device) {
	kind := "IPAQENET"
	if d.IPv6 {
		kind = "IPAQENET6"
	}
	preset := newDevice("", d.IPv6)
	w.statement("INTERFACE "+plain(d.Name)+" DEFINE "+kind, shown(deviceTable(d.IPv6), d, &preset))
	for _, a := range d.Addresses {
		if a.Deprecated {
			w.line(fmt.Sprintf("INTERFACE %s DEPRADDR %v", plain(d.Name), a.Addr))
		}
	}
}

func (w *writer) vipa(v *VIPADynamic) {
	w.line("VIPADYNAMIC")
	for _, a := range v.Deleted {
		w.line("  VIPADELETE " + plain(a))
	}
	for i := range v.DVIPAs {
		w.line("  " + v.DVIPAs[i].text())
	}
	for i := range v.Ranges {
		w.line("  " + v.Ranges[i].text())
	}
	for i := range v.Distributions {
		w.line("  " + v.Distributions[i].text())
	}
	for _, r := range v.Routes {
		w.line(fmt.Sprintf("  VIPAROUTE %s %v %v", verb(r.Delete), r.DestXCF, r.Target))
	}
	if v.ServiceMgr != nil {
		w.line("  VIPASMPARMS " + strings.Join(shown(serviceTable(), v.ServiceMgr, v.ServiceMgr), " "))
	}
	w.line("ENDVIPADYNAMIC")
}

func verb(isDelete bool) string {
	if isDelete {
		return "DELETE"
	}
	return "DEFINE"
}

func (d *DVIPA) text() string {
	words := []string{"VIPADEFINE"}
	if d.Backup {
		words = []string{"VIPABACKUP", fmt.Sprint(d.Rank)}
	}
	if d.Tier != 0 {
		words = append(words, fmt.Sprintf("TIER%d", d.Tier))
	}
	if d.CPCScope {
		words = append(words, "CPCSCOPE")
	}
	if d.Moveable != "" {
		words = append(words, "MOVEABLE", d.Moveable)
	}
	if d.ServiceMgr {
		words = append(words, "SERVICEMGR")
	}
	switch {
	case d.Name != "" && d.Bits >= 0:
		words = append(words, plain(d.Name), fmt.Sprintf("%v/%d", d.Addr, d.Bits))
	case d.Name != "":
		words = append(words, plain(d.Name), d.Addr.String())
	case d.Bits >= 0:
		words = append(words, maskText(d.Bits), d.Addr.String())
	default:
		words = append(words, d.Addr.String())
	}
	return strings.Join(words, " ")
}

func (r *VIPARange) text() string {
	s := fmt.Sprintf("VIPARANGE %s MOVEABLE %s ", verb(r.Delete), r.Moveable)
	if r.Name != "" {
		s += fmt.Sprintf("%s %v", plain(r.Name), r.Subnet)
	} else {
		s += fmt.Sprintf("%s %v", maskText(r.Subnet.Bits()), r.Subnet.Addr())
	}
	if r.SAF != "" {
		s += " SAF " + plain(r.SAF)
	}
	if r.ZCX {
		s += " ZCX"
	}
	return s
}

// maskText is the mask of an IPv4 prefix length.
func maskText(bits int) string {
	m := ^uint32(0) << (32 - bits)
	return fmt.Sprintf("%d.%d.%d.%d", m>>24, m>>16&255, m>>8&255, m&255)
}

func (d *Distribution) text() string {
	words := append([]string{"VIPADISTRIBUTE"}, shown(distributeTable(), d, d)...)
	words = append(words, d.Addr.String())
	if len(d.Ports) > 0 {
		words = append(words, "PORT")
	}
	for _, r := range d.Ports {
		if r.First == r.Last {
			words = append(words, fmt.Sprint(r.First))
		} else {
			words = append(words, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
	}
	switch {
	case d.AllTargets:
		words = append(words, "DESTIP ALL")
	case len(d.Targets) > 0:
		words = append(words, "DESTIP")
	}
	for _, t := range d.Targets {
		words = append(words, t.Addr.String())
		switch {
		case t.Weight != 0:
			words = append(words, fmt.Sprintf("WEIGHT %d", t.Weight))
		case t.Preferred:
			words = append(words, "PREFERRED")
		case t.Backup:
			words = append(words, fmt.Sprintf("BACKUP %d", t.Rank))
		}
	}
	return strings.Join(words, " ")
}

func (w *writer) port(e *Port) {
	var words []string
	table := portTable()
	switch {
	case e.Unreserved:
		words, table = []string{"PORT UNRSV"}, unreservedTable()
	case e.Range:
		words = []string{fmt.Sprintf("PORTRANGE %d %d", e.First, e.Count)}
	default:
		words = []string{fmt.Sprintf("PORT %d", e.First)}
	}
	words = append(words, e.Protocol, plain(e.Job))
	w.line(strings.Join(append(words, shown(table, e, e)...), " "))
}

func (w *writer) route(r *Route) {
	dest, gateway, mtu := r.Dest.String(), "=", "DEFAULTSIZE"
	switch dest {
	case "0.0.0.0/0":
		dest = "DEFAULT"
	case "::/0":
		dest = "DEFAULT6"
	}
	if r.Gateway.IsValid() {
		gateway = r.Gateway.String()
	}
	if r.MTU != 0 {
		mtu = fmt.Sprint(r.MTU)
	}
	w.line(fmt.Sprintf("  ROUTE %s %s %s MTU %s %s", dest, gateway, plain(r.Interface), mtu, strings.Join(shown(routeTable(), r, r), " ")))
}

// plain writes a value so that it is read as one: in quotes where it holds a
// blank or is a word of the language.
func plain(value string) string {
	if value == "" || strings.ContainsAny(value, " \t;&") || isVocabulary(fold(value)) || isAddress(&token{word: value}) {
		return `"` + value + `"`
	}
	return value
}

var (
	vocabularyOnce sync.Once
	vocabulary     []keyword
)

func isVocabulary(word string) bool {
	vocabularyOnce.Do(func() {
		for _, d := range describe() {
			vocabulary = append(append(vocabulary, d.word), d.words...)
		}
		vocabulary = append(append(vocabulary, blockEnds...), "INCLUDE", "*")
	})
	for _, k := range vocabulary {
		if k.is(word) {
			return word != "*" // a value of its own in the statements that take it
		}
	}
	return false
}
