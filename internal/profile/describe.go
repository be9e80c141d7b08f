package profile

// description is a statement or entry and every word of its tables: what its
// reference page must have.
type description struct {
	word  keyword
	page  string
	words []keyword
	rows  []row
}

// row is one operand as the reference page shows it.
type row struct {
	word   keyword
	values string
	// preset is how the default is written. It is asked for, because writing a
	// value needs the language's words, which come from here.
	preset func() string
	effect effect
	linux  string
}

func describe() []description {
	describeAll := func(word keyword, page string, tables ...[]row) description {
		d := description{word: word, page: page}
		for _, t := range tables {
			for _, r := range t {
				d.words = append(d.words, r.word)
				d.rows = append(d.rows, r)
			}
		}
		return d
	}
	four, six := newDevice("", false), newDevice("", true)
	method := Distribution{Method: "BASEWLM", OptLocal: -1}
	port := Port{DelayAcks: true}
	route, trace := newRoute(), Trace{Action: "ON", Interface: "*", Protocol: "*", Addr: "*", Discard: "NONE"}
	monitor := newMonitor()
	out := []description{
		describeAll("INTERFace", "interface", wordRows(interfaceVerbs), rows(deviceTable(false), &four), rows(deviceTable(true), &six)),
		describeAll("GLOBALCONFig", "globalconfig", rows(globalTable(), newGlobal()), rows(monitorTable(), &monitor), rows(ziipTable(), newGlobal()), wordRows(append(controlValues(), "IOPRI1", "IOPRI2", "IOPRI3", "IOPRI4"))),
		describeAll("IPCONFig", "ipconfig", rows(ipTable(), newIP()), rows(xcfTable(v4), &DynamicXCF{SecClass: classMax})),
		describeAll("IPCONFIG6", "ipconfig6", rows(ip6Table(), newIP6()), rows(lifetimeTable(), newIP6()), rows(xcfTable(v6), &DynamicXCF{SecClass: classMax})),
		describeAll("TCPCONFig", "tcpconfig", rows(tcpTable(), newTCP())),
		describeAll("VIPADYNAMIC", "vipadynamic", wordRows([]keyword{"ENDVIPADYNAMIC"})),
		describeAll("PORT", "port", rows(portTable(), &port), wordRows([]keyword{"UNRSV"}), rows(unreservedTable(), &Port{When: "WHENLISTEN"})),
		describeAll("PORTRange", "portrange", rows(portTable(), &port)),
		describeAll("BEGINRoutes", "beginroutes", wordRows([]keyword{"ROUTE", "HOST", "DEFAULT", "DEFAULT6", "DEFAULTSIZE", "MTU", "ENDROUTES"}), rows(routeTable(), &route)),
		describeAll("AUTOLOG", "autolog", rows(procedureTable(), &Procedure{}), wordRows([]keyword{"ENDAUTOLOG"})),
		describeAll("PKTTRACE", "pkttrace", rows(traceTable(), &trace)),
		describeAll("START", "start"),
		describeAll("STOP", "start"),
		describeAll("VIPADEFine", "vipadynamic", wordRows([]keyword{"TIER1", "TIER2", "CPCSCOPE", "MOVEable", "IMMEDiate", "WHENIDLE", "SERVICEMGR"})),
		describeAll("VIPABackup", "vipadynamic"),
		describeAll("VIPARange", "vipadynamic", wordRows([]keyword{"DEFINE", "DELEte", "NONDISRUPTive", "DISRUPTive", "SAF", "ZCX"})),
		describeAll("VIPADELete", "vipadynamic"),
		describeAll("VIPADISTribute", "vipadynamic", rows(distributeTable(), &method), rows(methodTable(), &method), wordRows([]keyword{"PORT", "DESTIP", "ALL", "WEIGHT", "PREFERRED", "BACKUP"})),
		describeAll("VIPAROUTE", "vipadynamic"),
		describeAll("VIPASMparms", "vipadynamic", rows(serviceTable(), newServiceManager())),
		describeAll("INCLUDE", "include"),
	}
	for _, s := range refused() {
		out = append(out, description{word: s.word, page: s.page, rows: []row{{word: s.word, linux: s.linux}}})
	}
	return out
}

func wordRows(ks []keyword) []row {
	var out []row
	for _, k := range ks {
		out = append(out, row{word: k})
	}
	return out
}

// rows describes a table; preset is the value before anything is read.
func rows[T any](table []operand[T], preset *T) []row {
	var out []row
	for _, o := range table {
		r := row{word: o.word, values: o.values, effect: o.effect, linux: o.linux}
		if o.show != nil {
			r.preset = func() string { return o.show(preset) }
		}
		out = append(out, r)
	}
	return out
}
