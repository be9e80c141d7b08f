package profile

import (
	"net/netip"

	"xlane/internal/model"
)

// Config is a profile that has been checked: what is written in it, and the
// defaults of every statement that is in it. A statement that is not written is
// nil or empty. In JSON, fields are only ever added.
type Config struct {
	// Devices are the INTERFACE statements, in order, without those deleted.
	Devices []Device `json:"interfaces"`
	// Deleted are interfaces that INTERFACE … DELETE takes away and this profile
	// does not define again.
	Deleted []string `json:"deleted,omitempty"`
	// Started and Stopped are the names of START and STOP, in order; the last
	// one for a name counts.
	Started []string `json:"started,omitempty"`
	Stopped []string `json:"stopped,omitempty"`

	Global  *Global      `json:"globalconfig,omitempty"`
	IP      *IP          `json:"ipconfig,omitempty"`
	IP6     *IP6         `json:"ipconfig6,omitempty"`
	TCP     *TCP         `json:"tcpconfig,omitempty"`
	VIPA    *VIPADynamic `json:"vipadynamic,omitempty"`
	Ports   []Port       `json:"ports,omitempty"`
	Routes  *Routes      `json:"routes,omitempty"`
	Autolog *Autolog     `json:"autolog,omitempty"`
	Traces  []Trace      `json:"pkttrace,omitempty"`

	// Pending is what was accepted and is not in effect yet.
	Pending []Pending `json:"not_in_effect"`
}

// Pending is a statement or operand that was checked and does nothing yet.
type Pending struct {
	Pos
	// What is the statement, or the statement and its operand.
	What string `json:"what"`
	// Why says what is missing.
	Why string `json:"why"`
}

// Device is one INTERFACE … DEFINE IPAQENET or IPAQENET6.
type Device struct {
	// Name is the interface's, in capitals, 1 to 16 characters.
	Name string `json:"name"`
	// IPv6 tells IPAQENET6 from IPAQENET.
	IPv6 bool `json:"ipv6"`
	// PortName is the Linux device, in the case it was written.
	PortName  string    `json:"portname"`
	ChpidType string    `json:"chpidtype"`
	Addresses []Address `json:"addresses"`
	TempIP    bool      `json:"tempip"`
	// InterfaceID is the lower half of the addresses that IPv6 makes itself:
	// "" when the host chooses.
	InterfaceID string `json:"intfid,omitempty"`
	// MTU in bytes, VLANID the tag; 0 when not written.
	MTU    uint32 `json:"mtu"`
	VLANID uint32 `json:"vlanid"`
	// VMAC is set when VMAC is written; MAC is its address, "" for the device's
	// own; VMACRoute is ALL or LCL.
	VMAC      bool   `json:"vmac"`
	MAC       string `json:"mac,omitempty"`
	VMACRoute string `json:"vmac_route,omitempty"`
	// Router is NONROUTER, PRIROUTER or SECROUTER.
	Router    string        `json:"router"`
	INBPERF   model.INBPERF `json:"inbperf"`
	WorkloadQ bool          `json:"workloadq"`
	OLM       bool          `json:"olm"`

	Isolate     bool   `json:"isolate"`
	MonSysplex  bool   `json:"monsysplex"`
	SourceVIPA  string `json:"sourcevipainterface,omitempty"`
	ReadStorage string `json:"readstorage"`
	SecClass    uint32 `json:"secclass"`
	Broadcast   bool   `json:"ipbcast"`
	DynVLANReg  bool   `json:"dynvlanreg"`
	DupAddrDet  uint32 `json:"dupaddrdet"`
	TempPrefix  string `json:"tempprefix"`

	// Netns, CPUs, Adapter, BulkThreshold and FlowsMax are what the flags of run
	// of those names say (see Interface).
	Netns         string `json:"netns,omitempty"`
	CPUs          string `json:"cpus,omitempty"`
	Adapter       string `json:"adapter,omitempty"`
	BulkThreshold uint32 `json:"bulkthreshold,omitempty"`
	FlowsMax      uint32 `json:"flowsmax,omitempty"`

	token       *token // its name
	portWritten bool   // PORTNAME is there, right or wrong
	modeWritten bool   // INBPERF is there
}

// Address is an address of an interface. Bits is its prefix length, -1 when
// none is written: reports show that as /0.
type Address struct {
	Addr netip.Addr `json:"address"`
	Bits int        `json:"bits"`
	// Deprecated addresses are not chosen for new connections.
	Deprecated bool `json:"deprecated,omitempty"`
}

// Global is GLOBALCONFIG. Sizes are bytes, 0 for no limit; times are seconds.
type Global struct {
	AdjustDVIPAMSS string `json:"adjustdvipamss"`
	AutoIQDX       string `json:"autoiqdx"` // ALLTRAFFIC, NOLARGEDATA or NO
	ECSALimit      uint32 `json:"ecsalimit"`
	PoolLimit      uint32 `json:"poollimit"`
	// BindFirst and BindCount are EXPLICITBINDPORTRANGE; BindCount 0 is off.
	BindFirst           uint32 `json:"explicitbind_first"`
	BindCount           uint32 `json:"explicitbind_count"`
	IQDMultiWrite       bool   `json:"iqdmultiwrite"`
	IQDVLANID           uint32 `json:"iqdvlanid"`
	MaxRecs             uint32 `json:"maxrecs"` // 0 is all
	MLSCheckTerminate   bool   `json:"mlschkterminate"`
	SegmentationOffload bool   `json:"segmentationoffload"`
	TCPIPStatistics     bool   `json:"tcpipstatistics"`
	ZERT                bool   `json:"zert"`
	SysplexWLMPoll      uint32 `json:"sysplexwlmpoll_s"`
	XCFGroupID          string `json:"xcfgrpid,omitempty"`
	ZIIPIPSecurity      bool   `json:"ziip_ipsecurity"`
	ZIIPMultiWrite      bool   `json:"ziip_iqdiomultiwrite"`

	Monitor SysplexMonitor `json:"sysplexmonitor"`
	// PriorityQ is the map of WLMPRIORITYQ, nil for NOWLMPRIORITYQ.
	PriorityQ PriorityQ `json:"wlmpriorityq,omitempty"`
}

// SysplexMonitor is what a member of a group does about its own health.
type SysplexMonitor struct {
	TimerSecs      uint32 `json:"timersecs"`
	Recovery       bool   `json:"recovery"`
	AutoRejoin     bool   `json:"autorejoin"`
	Join           string `json:"join"` // NODELAYJOIN, DELAYJOIN or NOJOIN
	MonInterface   bool   `json:"moninterface"`
	DynRoute       bool   `json:"dynroute"`
	DelayJoinIPSec bool   `json:"delayjoinipsec"`
	MonIPSec       bool   `json:"monipsec"`
}

// PriorityQ says which outbound queue, 1 to 4, traffic of each control value
// goes to: the values 0 to 6 and FWD.
type PriorityQ map[string]int

// IP is IPCONFIG. Times are seconds.
type IP struct {
	ARPTimeout          uint32      `json:"arpto_s"`
	ChecksumOffload     bool        `json:"checksumoffload"`
	Forward             string      `json:"datagramfwd"` // NO, NOFWDMULTIPATH or FWDMULTIPATH
	DevRetryDuration    uint32      `json:"devretryduration_s"`
	DynamicXCF          *DynamicXCF `json:"dynamicxcf,omitempty"`
	Format              string      `json:"format"`
	IgnoreRedirect      bool        `json:"ignoreredirect"`
	IPSecurity          bool        `json:"ipsecurity"`
	IQDIORouting        uint32      `json:"iqdiorouting"`    // the QDIO priority, 0 is off
	QDIOAccelerator     uint32      `json:"qdioaccelerator"` // the QDIO priority, 0 is off
	Multipath           string      `json:"multipath"`       // NO, PERCONNECTION or PERPACKET
	PathMTUDiscovery    bool        `json:"pathmtudiscovery"`
	ReassemblyTimeout   uint32      `json:"reassemblytimeout_s"`
	SegmentationOffload bool        `json:"segmentationoffload"`
	SourceVIPA          bool        `json:"sourcevipa"`
	SysplexRouting      bool        `json:"sysplexrouting"`
	TCPStackSourceVIPA  string      `json:"tcpstacksourcevipa,omitempty"`
	TTL                 uint32      `json:"ttl"`
}

// DynamicXCF is the address by which the members of a group reach each other.
type DynamicXCF struct {
	Addr       netip.Addr `json:"address"`
	Bits       int        `json:"bits"` // -1 when none is written (IPv6)
	CostMetric uint32     `json:"cost_metric,omitempty"`
	IntfID     string     `json:"intfid,omitempty"`
	SecClass   uint32     `json:"secclass"`
	SMCD       bool       `json:"smcd"`
	SourceVIPA string     `json:"sourcevipainterface,omitempty"`
}

// IP6 is IPCONFIG6. Lifetimes are hours.
type IP6 struct {
	ChecksumOffload      bool        `json:"checksumoffload"`
	Forward              string      `json:"datagramfwd"`
	DynamicXCF           *DynamicXCF `json:"dynamicxcf,omitempty"`
	HopLimit             uint32      `json:"hoplimit"`
	ICMPErrorLimit       uint32      `json:"icmperrorlimit_per_s"`
	IgnoreRedirect       bool        `json:"ignoreredirect"`
	IgnoreRouterHopLimit bool        `json:"ignorerouterhoplimit"`
	IPSecurity           bool        `json:"ipsecurity"`
	OSMSecClass          uint32      `json:"osmsecclass"`
	Multipath            string      `json:"multipath"`
	R1Compliance         bool        `json:"r1compliance"`
	SegmentationOffload  bool        `json:"segmentationoffload"`
	SourceVIPA           bool        `json:"sourcevipa"`
	TCPStackSourceVIPA   string      `json:"tcpstacksourcevipa,omitempty"`
	TempAddrs            bool        `json:"tempaddrs"`
	PrefLifetime         uint32      `json:"preflifetime_h"`
	ValidLifetime        uint32      `json:"validlifetime_h"`
}

// TCP is TCPCONFIG. Sizes are bytes; the unit of a time is in its name.
type TCP struct {
	SendBuffer             uint32 `json:"tcpsendbfrsize"`
	ReceiveBuffer          uint32 `json:"tcprcvbufrsize"`
	ReceiveBufferMax       uint32 `json:"tcpmaxrcvbufrsize"`
	SendBufferMax          uint32 `json:"tcpmaxsendbufrsize"`
	DelayAcks              string `json:"delayacks"` // DELAYACKS, NODELAYACKS or AUTODELAYACKS
	IntervalMin            uint32 `json:"interval_min"`
	KeepAliveProbes        uint32 `json:"keepaliveprobes"`
	KeepAliveProbeInterval uint32 `json:"keepaliveprobeinterval_s"`
	FinWait2Time           uint32 `json:"finwait2time_s"`
	TimeWaitInterval       uint32 `json:"timewaitinterval_s"`
	FRRThreshold           uint32 `json:"frrthreshold"`
	ConnectTimeout         uint32 `json:"connecttimeout_s"`
	ConnectInitInterval    uint32 `json:"connectinitinterval_ms"`
	MaximumRetransmitTime  uint32 `json:"maximumretransmittime_s"`
	RetransmitAttempts     uint32 `json:"retransmitattempts"`
	QueuedRTT              uint32 `json:"queuedrtt_ms"`
	EphemeralFirst         uint32 `json:"ephemeralports_first"`
	EphemeralLast          uint32 `json:"ephemeralports_last"`
	SelectiveAck           bool   `json:"selectiveack"`
	Timestamp              bool   `json:"tcptimestamp"`
	Nagle                  bool   `json:"nagle"`
	RestrictLowPorts       bool   `json:"restrictlowports"`
	SendGarbage            bool   `json:"sendgarbage"`
	TTLS                   bool   `json:"ttls"`
}

// VIPADynamic is the VIPADYNAMIC block: this host's part in virtual addresses
// that move and are distributed.
type VIPADynamic struct {
	DVIPAs        []DVIPA         `json:"dvipas,omitempty"`
	Ranges        []VIPARange     `json:"ranges,omitempty"`
	Deleted       []string        `json:"deleted,omitempty"`
	Distributions []Distribution  `json:"distributions,omitempty"`
	Routes        []VIPARoute     `json:"viparoutes,omitempty"`
	ServiceMgr    *ServiceManager `json:"vipasmparms,omitempty"`
}

// DVIPA is a virtual address of VIPADEFINE, or with Backup of VIPABACKUP.
type DVIPA struct {
	Backup bool       `json:"backup"`
	Rank   uint32     `json:"rank,omitempty"`
	Addr   netip.Addr `json:"address"`
	Bits   int        `json:"bits"` // -1 when none is written
	// Name is the interface name that an IPv6 one has.
	Name       string `json:"name,omitempty"`
	Tier       uint32 `json:"tier,omitempty"` // 1, 2, or 0 for none
	CPCScope   bool   `json:"cpcscope"`
	Moveable   string `json:"moveable,omitempty"` // IMMEDIATE or WHENIDLE; "" on a backup that cannot activate
	ServiceMgr bool   `json:"servicemgr"`
}

// VIPARange is a subnet whose addresses programs may ask for.
type VIPARange struct {
	Delete   bool         `json:"delete,omitempty"`
	Moveable string       `json:"moveable"` // NONDISRUPTIVE or DISRUPTIVE
	Name     string       `json:"name,omitempty"`
	Subnet   netip.Prefix `json:"subnet"`
	SAF      string       `json:"saf,omitempty"`
	ZCX      bool         `json:"zcx,omitempty"`
}

// Distribution is VIPADISTRIBUTE: new connections to an address go to targets.
type Distribution struct {
	Delete bool       `json:"delete,omitempty"`
	Addr   netip.Addr `json:"address"`
	// Tier and TierKind: TIER1 with GRE, ENCAP or "", or TIER2.
	Tier     uint32 `json:"tier,omitempty"`
	TierKind string `json:"tier_kind,omitempty"`
	Method   string `json:"distmethod"`
	// Proc are the PROCTYPE shares of BASEWLM or the PROCXCOST costs of SERVERWLM.
	Proc           map[string]uint32 `json:"proc,omitempty"`
	ILWeighting    uint32            `json:"ilweighting,omitempty"`
	AutoSwitchBack bool              `json:"autoswitchback,omitempty"`
	HealthSwitch   bool              `json:"healthswitch,omitempty"`
	SysplexPorts   bool              `json:"sysplexports"`
	TimedAffinity  uint32            `json:"timedaffinity_s"`
	OptLocal       int               `json:"optlocal"` // -1 is NOOPTLOCAL
	Ports          []PortRange       `json:"ports,omitempty"`
	AllTargets     bool              `json:"destip_all,omitempty"`
	Targets        []Target          `json:"targets,omitempty"`
}

// PortRange is first to last, both included.
type PortRange struct {
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// Target is one DESTIP of a distribution.
type Target struct {
	Addr      netip.Addr `json:"address"`
	Weight    uint32     `json:"weight,omitempty"`
	Preferred bool       `json:"preferred,omitempty"`
	Backup    bool       `json:"backup,omitempty"`
	Rank      uint32     `json:"rank,omitempty"`
}

// VIPARoute says by which address a target is reached instead of its XCF one.
type VIPARoute struct {
	Delete  bool       `json:"delete,omitempty"`
	DestXCF netip.Addr `json:"destxcf"`
	Target  netip.Addr `json:"target"`
}

// ServiceManager is VIPASMPARMS.
type ServiceManager struct {
	Group    netip.Addr `json:"smmcast"`
	Port     uint32     `json:"smport"`
	Password string     `json:"smpass,omitempty"`
}

// Port is an entry of PORT or PORTRANGE, in the order they are written.
type Port struct {
	// Range tells PORTRANGE from PORT; Unreserved is UNRSV, without numbers.
	Range      bool   `json:"range,omitempty"`
	Unreserved bool   `json:"unrsv,omitempty"`
	First      uint32 `json:"first,omitempty"`
	Count      uint32 `json:"count,omitempty"`
	Protocol   string `json:"protocol"` // TCP or UDP
	// Job is the program's name, or RESERVED, AUTHPORT or *.
	Job       string     `json:"job"`
	NoAutolog bool       `json:"noautolog,omitempty"`
	DelayAcks bool       `json:"delayacks"`
	Share     string     `json:"share,omitempty"` // SHAREPORT or SHAREPORTWLM
	Bind      netip.Addr `json:"bind,omitzero"`
	SAF       string     `json:"saf,omitempty"`
	SMC       string     `json:"smc,omitempty"`
	Deny      bool       `json:"deny,omitempty"`
	When      string     `json:"when,omitempty"` // WHENLISTEN or WHENBIND, for UNRSV

	token *token
}

// Routes is BEGINROUTES: it replaces the static routes there were.
type Routes struct {
	Routes []Route `json:"routes"`
}

// Route is one ROUTE.
type Route struct {
	// Dest is the destination; 0.0.0.0/0 and ::/0 are DEFAULT and DEFAULT6.
	Dest netip.Prefix `json:"destination"`
	// Gateway is invalid for a direct route.
	Gateway     netip.Addr `json:"gateway,omitzero"`
	Interface   string     `json:"interface"`
	MTU         uint32     `json:"mtu"` // 0 is DEFAULTSIZE
	Replaceable bool       `json:"replaceable"`
	// Times are seconds; the gains have no unit.
	MaximumRetransmitTime string `json:"maximumretransmittime_s"`
	MinimumRetransmitTime string `json:"minimumretransmittime_s"`
	RoundTripGain         string `json:"roundtripgain"`
	VarianceGain          string `json:"variancegain"`
	VarianceMultiplier    string `json:"variancemultiplier"`
	DelayAcks             bool   `json:"delayacks"`
}

// Autolog is AUTOLOG: programs that are started with the stack.
type Autolog struct {
	WaitMin  uint32      `json:"wait_min"`
	Programs []Procedure `json:"programs"`
}

// Procedure is one program of AUTOLOG.
type Procedure struct {
	Name string `json:"name"`
	Job  string `json:"jobname,omitempty"`
	// Parameters is PARMSTRING, as written, at most 115 bytes.
	Parameters string `json:"parmstring,omitempty"`
	// DelayDVIPA and DelayTTLS are what DELAYSTART waits for.
	DelayDVIPA bool `json:"delaystart_dvipa,omitempty"`
	DelayTTLS  bool `json:"delaystart_ttls,omitempty"`
}

// Trace is one PKTTRACE: all of its filters must match.
type Trace struct {
	Action    string `json:"action"`            // ON, OFF or CLEAR
	Interface string `json:"interface"`         // * is all
	Protocol  string `json:"protocol"`          // *, a name or a number
	Addr      string `json:"address"`           // * or a/n
	Port      uint32 `json:"port,omitempty"`    // source or destination; 0 is any
	SrcPort   uint32 `json:"srcport,omitempty"` // 0 is any
	DestPort  uint32 `json:"destport,omitempty"`
	Discard   string `json:"discard"` // NONE, ALL or a reason's number
	Length    uint32 `json:"length"`  // bytes of each packet, 0 is all
}
