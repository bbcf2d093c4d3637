// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Container is a container of a specification.
type Container struct {
	Name string // of its pod, too, if there are several: "pod/container"; "" of an OCI bundle
	Env  map[string]string
	// Unread are the variables whose values are not in the specification (valueFrom), and
	// "envFrom" if it refers to sets of variables.
	Unread []string
}

// The bounds of a specification.
const (
	maxSpec       = 16 << 20
	maxContainers = 4 << 10
	maxVariables  = 1 << 16  // of all containers
	maxValue      = 64 << 10 // bytes of one variable, after expansion
	maxValues     = 64 << 20 // bytes of all variables
)

// Errors of a specification.
var (
	ErrSpecTooLarge = errors.New("variables: the specification is too large")
	ErrNoContainer  = errors.New("variables: no such container")
)

// FromSpec reads the variables of one container of a specification: the container that name
// names, as "pod/container" or as "container", or the only one if name is "". See [Containers].
// It returns [ErrNoContainer] if no container or several fit the name, and the errors of
// Containers.
func FromSpec(r io.Reader, name string) (map[string]string, error) {
	containers, err := Containers(r)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(containers))
	var found []Container
	for i, c := range containers {
		all[i] = c.Name
		if name == "" || c.Name == name || strings.HasSuffix(c.Name, "/"+name) {
			found = append(found, c)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].Env, nil
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %q; there are: %s", ErrNoContainer, name, few(all))
	}
	return nil, fmt.Errorf("%w: several fit %q; name one of: %s", ErrNoContainer, name, few(all))
}

// Containers reads the containers of a specification in JSON: an OCI runtime's
// config.json, a Kubernetes Pod, an object with a pod template or a List of them (kubectl
// get -o json), or the output of docker inspect. Of a variable that is set twice the last
// value counts, as in the container. References $(NAME) of Kubernetes are expanded. A
// specification of more than 16 MiB or 4,096 containers is ErrSpecTooLarge.
func Containers(r io.Reader) ([]Container, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSpec+1))
	if err != nil {
		return nil, fmt.Errorf("variables: reading the specification: %w", err)
	}
	if len(data) > maxSpec {
		return nil, fmt.Errorf("%w: over %d bytes", ErrSpecTooLarge, maxSpec)
	}
	s := specReader{variables: maxVariables, bytes: maxValues}
	if err := s.read(data, ""); err != nil {
		return nil, err
	}
	if len(s.out) == 0 {
		return nil, errors.New("variables: no container in the specification: want an OCI config.json, a Kubernetes Pod as JSON, or the output of docker inspect")
	}
	return s.out, nil
}

// document has the fields of all kinds of specifications.
type document struct {
	Process *struct { // OCI
		Env []string `json:"env"`
	} `json:"process"`
	Config *struct { // docker inspect
		Env []string `json:"Env"`
	} `json:"Config"`
	Name string `json:"Name"`

	Metadata struct { // Kubernetes
		Name string `json:"name"`
	} `json:"metadata"`
	Spec  *podSpec          `json:"spec"`
	Items []json.RawMessage `json:"items"`
}

// podSpec is a PodSpec, or has a template of a pod below it.
type podSpec struct {
	InitContainers      []podContainer `json:"initContainers"`
	Containers          []podContainer `json:"containers"`
	EphemeralContainers []podContainer `json:"ephemeralContainers"`

	Template    *podTemplate `json:"template"`
	JobTemplate *podTemplate `json:"jobTemplate"`
}

type podTemplate struct {
	Spec *podSpec `json:"spec"`
}

type podContainer struct {
	Name string `json:"name"`
	Env  []struct {
		Name      string          `json:"name"`
		Value     string          `json:"value"`
		ValueFrom json.RawMessage `json:"valueFrom"`
	} `json:"env"`
	EnvFrom []json.RawMessage `json:"envFrom"`
}

type specReader struct {
	out              []Container
	variables, bytes int // left of the bounds
}

// read takes one document, or a list of them.
func (s *specReader) read(data []byte, parent string) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '[' {
		var all []json.RawMessage
		if err := json.Unmarshal(data, &all); err != nil {
			return notJSON(err)
		}
		return s.each(all, parent)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return notJSON(err)
	}
	switch {
	case d.Process != nil:
		return s.flat("", d.Process.Env)
	case d.Config != nil:
		return s.flat(strings.TrimPrefix(d.Name, "/"), d.Config.Env)
	case d.Items != nil && parent == "":
		return s.each(d.Items, "List")
	}
	spec := d.Spec
	for depth := 0; spec != nil && depth < 3; depth++ {
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers, spec.EphemeralContainers) {
			name := c.Name
			if parent != "" && d.Metadata.Name != "" {
				name = d.Metadata.Name + "/" + name
			}
			if err := s.pod(name, c); err != nil {
				return err
			}
		}
		switch t := cmp.Or(spec.Template, spec.JobTemplate); {
		case t != nil:
			spec = t.Spec
		default:
			spec = nil
		}
	}
	return nil
}

// each takes the documents of a list; a list in a list is none.
func (s *specReader) each(all []json.RawMessage, parent string) error {
	for _, one := range all {
		if one = bytes.TrimSpace(one); len(one) == 0 || one[0] != '{' {
			continue
		}
		if err := s.read(one, cmp.Or(parent, "List")); err != nil {
			return err
		}
	}
	return nil
}

func notJSON(err error) error {
	return fmt.Errorf("variables: the specification is not the JSON of a container (kubectl get pod NAME -o json, docker inspect NAME): %w", err)
}

// flat takes a list of NAME=VALUE.
func (s *specReader) flat(name string, env []string) error {
	c := Container{Name: name, Env: map[string]string{}}
	for _, entry := range env {
		if key, value, ok := strings.Cut(entry, "="); ok {
			if err := s.put(c.Env, key, value); err != nil {
				return err
			}
		}
	}
	return s.add(c)
}

// pod takes a container of a pod.
func (s *specReader) pod(name string, p podContainer) error {
	c := Container{Name: name, Env: map[string]string{}}
	if len(p.EnvFrom) > 0 {
		c.Unread = append(c.Unread, "envFrom")
	}
	for _, v := range p.Env {
		if from := bytes.TrimSpace(v.ValueFrom); len(from) > 0 && string(from) != "null" {
			delete(c.Env, v.Name)
			c.Unread = append(c.Unread, v.Name)
			continue
		}
		value, err := expand(v.Value, c.Env)
		if err != nil {
			return fmt.Errorf("%w: the variable %q of container %q", err, v.Name, name)
		}
		if err := s.put(c.Env, v.Name, value); err != nil {
			return err
		}
		c.Unread = slices.DeleteFunc(c.Unread, func(n string) bool { return n == v.Name })
	}
	return s.add(c)
}

func (s *specReader) add(c Container) error {
	if len(s.out) == maxContainers {
		return fmt.Errorf("%w: over %d containers", ErrSpecTooLarge, maxContainers)
	}
	s.out = append(s.out, c)
	return nil
}

// put sets a variable; a name that no environment can have is left out.
func (s *specReader) put(env map[string]string, name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
		return nil
	}
	s.variables--
	s.bytes -= len(name) + len(value)
	switch {
	case s.variables < 0:
		return fmt.Errorf("%w: over %d variables", ErrSpecTooLarge, maxVariables)
	case len(value) > maxValue:
		return fmt.Errorf("%w: a value has %d bytes", ErrSpecTooLarge, len(value))
	case s.bytes < 0:
		return fmt.Errorf("%w: the values have over %d bytes", ErrSpecTooLarge, maxValues)
	}
	env[name] = value
	return nil
}

// expand replaces $(NAME) by the value of a variable that is set before it, as Kubernetes
// does; $$ is a dollar, and a reference to no variable stays as it is.
func expand(value string, env map[string]string) (string, error) {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(value, "$")
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		switch name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")"); {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			value = rest[1:]
		case strings.HasPrefix(rest, "(") && closed:
			if v, set := env[name]; set {
				out.WriteString(v)
			} else {
				out.WriteString("$(" + name + ")")
			}
			value = after
		default:
			out.WriteByte('$')
			value = rest
		}
		if out.Len() > maxValue {
			return "", ErrSpecTooLarge
		}
	}
}
