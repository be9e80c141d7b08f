package profile

import (
	"fmt"
	"strings"
	"testing"
)

// TestTextOfAnySizeIsAnsweredWithinItsLimits: each text would take minutes if
// work grew with the square of its length.
func TestTextOfAnySizeIsAnsweredWithinItsLimits(t *testing.T) {
	count := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i>>8&255, i&255)
		}
		return b.String()
	}
	const many = 12_000
	for name, text := range map[string]string{
		"a file that is too large":            strings.Repeat(" ", fileBytesMax+1),
		"a file of too many words":            strings.Repeat("A ", fileTokensMax+1),
		"unknown statements":                  strings.Repeat("START X\nX\n", many),
		"interfaces that are never defined":   count(many, "START E%d%d\n"),
		"statements inside a block":           "VIPADYNAMIC\n" + strings.Repeat("START X\n", many) + "ENDVIPADYNAMIC\n",
		"blocks without an end":               strings.Repeat("VIPADYNAMIC ", many),
		"virtual addresses":                   "VIPADYNAMIC VIPADEFINE 255.255.0.0" + count(many, " 10.1.%d.%d") + " ENDVIPADYNAMIC",
		"targets":                             "VIPADYNAMIC VIPADEFINE 255.0.0.0 10.9.0.1 VIPADISTRIBUTE 10.9.0.1 DESTIP" + count(many, " 10.1.%d.%d") + " ENDVIPADYNAMIC",
		"ports of a distribution":             "VIPADYNAMIC VIPADEFINE 255.0.0.0 10.9.0.1 VIPADISTRIBUTE 10.9.0.1 PORT" + count(many, " %d%d") + " DESTIP ALL ENDVIPADYNAMIC",
		"ports":                               "PORT" + count(many, " 1%d%d TCP X"),
		"addresses of an interface":           "INTERFACE A DEFINE IPAQENET6 PORTNAME e IPADDR" + count(many, " 2001:db8::%d:%d"),
		"interfaces":                          count(many, "INTERFACE A%dB%d DEFINE IPAQENET PORTNAME e VLANID 1 VMAC\n"),
		"symbols that have no value":          count(many, "&A%dB%d. "),
		"comments":                            strings.Repeat(";\n", many),
		"quoted strings":                      strings.Repeat("\"\" ", many),
		"routes":                              "INTERFACE A DEFINE IPAQENET PORTNAME e BEGINROUTES" + count(many, " ROUTE 10.%d.%d.0/24 = A MTU 1492") + " ENDROUTES",
		"programs":                            "AUTOLOG" + count(many, " A%dB%d") + " ENDAUTOLOG",
		"packet traces":                       strings.Repeat("PKTTRACE ", many),
		"control values":                      "GLOBALCONFIG WLMPRIORITYQ IOPRI1" + strings.Repeat(" 0", many),
		"an operand again and again":          "IPCONFIG" + strings.Repeat(" TTL 1", many),
		"blocks that are refused":             strings.Repeat("NETACCESS ", many) + "ENDNETACCESS",
		"included files that include no more": strings.Repeat("INCLUDE conf/empty\n", many),
	} {
		t.Run(name, func(t *testing.T) {
			cfg, msgs := Parse(source(text))
			if len(msgs.List) > 2*messagesMax {
				t.Errorf("%d messages are kept", len(msgs.List))
			}
			if cfg != nil && name != "comments" {
				t.Error("accepted")
			}
			Format("p", []byte(text))
		})
	}
}
