// SPDX-License-Identifier: Apache-2.0

package page

// data is what the script gets. Each text stands once, in Texts, and is named elsewhere by its place there.
type data struct {
	Kind     string   `json:"kind"` // "fleet" or "machine"
	Version  string   `json:"version"`
	Made     string   `json:"made"`
	Claims   []claim  `json:"claims"` // of the links, in their order
	Texts    []string `json:"texts"`
	Remedies []remedy `json:"remedies"`
	Links    []link   `json:"links"`
	Details  []detail `json:"details"`
	Layouts  []layout `json:"layouts"`
	Kinds    []kind   `json:"kinds"`
	Changes  []drift  `json:"changes"` // differences from another run
	Drifts   []drifts `json:"drifts"`
	Causes   []cause  `json:"causes"`
	Groups   [][]int  `json:"groups"` // of causes that one change mends, the worst first
	Left     left     `json:"left"`

	Sorts   []sort   `json:"sorts"`        // of rows
	Rows    []row    `json:"rows"`         // of a fleet
	Like    text     `json:"like"`         // the node that the others are compared with
	Gone    []text   `json:"gone"`         // nodes of the earlier run without a run now
	KindsOf int      `json:"kindsOfNodes"` // how many kinds of nodes there are
	Machine *machine `json:"machine"`      // null of a fleet
}

// text is a place in Texts; none is -1.
type text int

const none text = -1

// claim is what a link says if it holds.
type claim struct {
	Link  string `json:"link"`
	Claim string `json:"claim"`
}

// remedy is what to change.
type remedy struct {
	Change  text `json:"change"`
	Command text `json:"command"`
	Place   text `json:"place"` // of the command, if it is no command to type
	Weakens text `json:"weakens"`
	Direct  bool `json:"direct"`
}

// link is the answer to one link of a chain.
type link struct {
	Link     text      `json:"link"`
	State    text      `json:"state"`
	Why      []text    `json:"why"`
	Evidence [][2]text `json:"evidence"` // a file and its value
	Remedy   int       `json:"remedy"`   // -1 without one
}

// detail is what a pair says, without the names of its devices.
type detail struct {
	Outcome    string `json:"outcome"`
	Head       text   `json:"head"`
	Decides    text   `json:"decides"`
	Conclusion text   `json:"conclusion"`
	Letters    text   `json:"letters"`
	Slow       bool   `json:"slow"`
	Why        []text `json:"why"`
	Notes      []text `json:"notes"`
	Links      []int  `json:"links"`
	Remedy     int    `json:"remedy"` // -1 without one
	Proof      text   `json:"proof"`
	Common     text   `json:"common"`
	Redirects  []text `json:"redirects"` // addresses of ports
	Cut        bool   `json:"cut"`       // the page has no room for more
}

// layout are the devices of the pairs that count: each GPU with its NICs.
type layout struct {
	GPUs   []device `json:"gpus"`
	NICs   []device `json:"nics"`
	Groups []group  `json:"groups"`
}

type device struct {
	Name   text `json:"name"`
	PCI    text `json:"pci"`
	Driver text `json:"driver"`
}

// group is a GPU, and the NICs with which it has pairs.
type group struct {
	GPU  int   `json:"gpu"`
	NICs []int `json:"nics"`
}

// kind is a node as its pairs show it. Cells are places in Details, in the order of the layout's groups; they
// are null if the page has no room for them.
type kind struct {
	Layout int   `json:"layout"`
	Cells  []int `json:"cells"`
	Cut    bool  `json:"cut"`
}

// drifts are differences from another run, the worst first.
type drifts struct {
	Items   []int `json:"items"` // places in Changes
	More    int   `json:"more"`
	Worse   int   `json:"worse"` // of all, as the other three
	Unknown int   `json:"unknown"`
	Changed int   `json:"changed"`
	Better  int   `json:"better"`
}

type drift struct {
	What     text   `json:"what"`
	Name     text   `json:"name"`
	Before   text   `json:"before"`
	After    text   `json:"after"`
	Change   string `json:"change"`
	AsksMore bool   `json:"asksMore"`
}

// cause is why nodes are not as they should be.
type cause struct {
	Result string `json:"result"`
	What   text   `json:"what"`
	Nodes  int    `json:"nodes"`
	Scope  []text `json:"scope"` // on the first of the nodes
	Scopes int    `json:"scopes"`
	Why    []text `json:"why"`
	Remedy int    `json:"remedy"`
	Repeat []text `json:"repeat"` // checks that say the same
}

// row is one node, or several that are alike.
type row struct {
	Nodes   []text `json:"nodes"`
	Sort    int    `json:"sort"`
	Kernel  text   `json:"kernel"`
	Differs int    `json:"differs"` // a place in Drifts, or -1
	Since   int    `json:"since"`   // likewise; -1 without an earlier run
}

// sort has the other facts of rows. Many rows have the same ones.
type sort struct {
	Result    string `json:"result"`
	GPUs      int    `json:"gpus"`
	NICs      int    `json:"nics"`
	Summary   counts `json:"summary"`
	Kind      int    `json:"kind"` // -1 if the file could not be read
	Failing   []text `json:"failing"`
	Fails     int    `json:"fails"`
	Unknown   []text `json:"unknown"`
	Unknowns  int    `json:"unknowns"`
	Causes    []int  `json:"causes"`
	SinceFrom text   `json:"sinceFrom"`
	SinceErr  text   `json:"sinceError"`
	Error     text   `json:"error"`
}

// counts are pairs by outcome, as result.Summary has them.
type counts struct {
	Direct  int `json:"direct"`
	Staged  int `json:"staged"`
	Refused int `json:"refused"`
	Lost    int `json:"lost"`
	Broken  int `json:"broken"`
	Unknown int `json:"unknown"`
	Outside int `json:"outside"`
}

// left is how much the page has no room for.
type left struct {
	Causes  int  `json:"causes"`
	Checks  int  `json:"checks"`
	Tree    int  `json:"tree"`
	Pairs   int  `json:"pairs"`
	Details bool `json:"details"`
	Cells   bool `json:"cells"`
}

// machine is one machine.
type machine struct {
	Name     text       `json:"name"` // "" if it is not known
	Facts    []fact     `json:"facts"`
	Result   string     `json:"result"`
	Headline text       `json:"headline"`
	Summary  counts     `json:"summary"`
	Unread   []text     `json:"unread"`
	Kind     int        `json:"kind"`
	Since    int        `json:"since"`
	Baseline text       `json:"baseline"`
	Tree     []function `json:"tree"`
	Checks   []finding  `json:"checks"`
	Ways     []way      `json:"ways"` // of the pairs, as Cells of the kind
}

// fact is a name and a value.
type fact struct {
	Name  string `json:"name"`
	Value text   `json:"value"`
}

// function is a PCI function of the tree.
type function struct {
	PCI      text   `json:"pci"`
	Bus      text   `json:"bus"`
	Path     []int  `json:"path"` // places in Tree of the functions above, the highest first
	Role     string `json:"role"`
	Title    text   `json:"title"` // the kind of function: "NIC mlx5_0 (mlx5_core)"
	Name     text   `json:"name"`  // of the product, or its numbers
	Devices  []text `json:"devices"`
	Facts    []text `json:"facts"`
	Redirect bool   `json:"redirects"` // ACS sends traffic to the root
	Hidden   bool   `json:"acsUnknown"`
	Slow     bool   `json:"slow"` // its link could carry more
	Link     text   `json:"link"`
}

// finding is what a check found.
type finding struct {
	ID       text   `json:"id"`
	Result   string `json:"result"`
	Title    text   `json:"title"`
	Scope    []text `json:"scope"`
	Scopes   int    `json:"scopes"`
	Read     text   `json:"read"`
	Where    []text `json:"where"`
	Expected text   `json:"expected"`
	Decides  bool   `json:"decides"`
	Remedy   int    `json:"remedy"`
	Ref      text   `json:"ref"`
}

// way is how fast the links between a GPU and a NIC are.
type way struct {
	Text text `json:"text"`
	Slow text `json:"slowest"` // the function of the slowest link, if the ends could carry more
}
