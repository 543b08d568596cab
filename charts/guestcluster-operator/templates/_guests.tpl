{{/*
Rules of the machines of guests. Called with a dict: `kind` of the objects, `spec` and `labels`, the
CEL paths of the machine and of the labels that its Pod gets.
*/}}
{{- define "operator.guests.variables" }}
    - name: labels
      expression: object.metadata.?labels.orValue({})
    - name: podLabels
      expression: {{ .labels }}
    - name: keys
      expression: "['guestcluster.dev/tenant', 'guestcluster.dev/cluster', 'guestcluster.dev/role']"
    - name: controlPlane
      expression: >-
        variables.labels[?'guestcluster.dev/role'].orValue('') == 'control-plane' ||
        variables.podLabels[?'guestcluster.dev/role'].orValue('') == 'control-plane'
    - name: name
      # Not yet known where the name is generated.
      expression: "'{{ .kind }} ' + object.metadata.?name.orValue(object.metadata.?generateName.orValue(''))"
    - name: unlabelled
      expression: >-
        variables.keys.filter(key, variables.labels[?key].orValue('') == '' ||
        variables.labels[?key] != variables.podLabels[?key])
    - name: requests
      expression: {{ .spec }}.domain.?resources.?requests.orValue({})
    - name: limits
      expression: {{ .spec }}.domain.?resources.?limits.orValue({})
    # Keys that all control-plane machines of a cluster share: any other would select fewer of them.
    - name: shared
      expression: "variables.keys + ['guestcluster.dev/cluster-uid']"
{{- end }}

{{- define "operator.guests.validations" }}
    - expression: size(variables.unlabelled) == 0
      messageExpression: >-
        variables.name + " belongs to no guest: write " + variables.unlabelled.join(", ") + " in {{ .write }}"
    - expression: >-
        variables.labels[?'guestcluster.dev/role'].orValue('worker') in ['control-plane', 'worker']
      messageExpression: >-
        variables.name + " has an unknown role: write guestcluster.dev/role: control-plane, or worker"
    - expression: >-
        !variables.controlPlane || variables.podLabels[?'guestcluster.dev/profile'].orValue('') == 'lab' ||
        {{ .spec }}.?affinity.?podAntiAffinity.?requiredDuringSchedulingIgnoredDuringExecution.orValue([]).exists(term,
        term.topologyKey == 'kubernetes.io/hostname' && !has(term.namespaceSelector) &&
        size(term.?namespaces.orValue([])) == 0 && size(term.?matchLabelKeys.orValue([])) == 0 &&
        size(term.?mismatchLabelKeys.orValue([])) == 0 &&
        size(term.?labelSelector.?matchExpressions.orValue([])) == 0 &&
        ['guestcluster.dev/cluster', 'guestcluster.dev/role'].all(key,
        key in term.?labelSelector.?matchLabels.orValue({})) &&
        term.?labelSelector.?matchLabels.orValue({}).all(key, key in variables.shared &&
        term.labelSelector.matchLabels[key] == variables.podLabels[?key].orValue('')))
      messageExpression: >-
        variables.name + " may share a host with another control-plane machine of its cluster: write a required
        podAntiAffinity with topologyKey kubernetes.io/hostname and the matchLabels guestcluster.dev/cluster and
        guestcluster.dev/role of its own; or label it guestcluster.dev/profile: lab"
    - expression: "!variables.controlPlane || {{ .spec }}.domain.?cpu.?dedicatedCpuPlacement.orValue(false)"
      messageExpression: >-
        variables.name + " is a control plane without CPUs of its own: write domain.cpu.dedicatedCpuPlacement: true"
    - expression: >-
        !variables.controlPlane || ['cpu', 'memory'].all(key, key in variables.requests && key in variables.limits &&
        quantity(string(variables.requests[key])).compareTo(quantity(string(variables.limits[key]))) == 0)
      messageExpression: >-
        variables.name + " is a control plane without Guaranteed resources: write the same cpu and memory in
        domain.resources.requests and in domain.resources.limits"
    - expression: >-
        !variables.controlPlane || !has({{ .spec }}.domain.memory) || !has({{ .spec }}.domain.memory.guest) ||
        !('memory' in variables.requests) || quantity(string(variables.requests['memory'])).compareTo(
        quantity(string({{ .spec }}.domain.memory.guest))) >= 0
      messageExpression: >-
        variables.name + " is a control plane that asks for less memory than its guest has: write at least
        domain.memory.guest in domain.resources.requests.memory and in domain.resources.limits.memory"
    - expression: >-
        !variables.controlPlane || !{{ .spec }}.?volumes.orValue([]).exists(volume,
        has(volume.containerDisk) || has(volume.ephemeral))
      messageExpression: >-
        variables.name + " is a control plane on a disk that forgets: write a dataVolume or persistentVolumeClaim in
        place of containerDisk and ephemeral"
    - expression: >-
        !variables.controlPlane || variables.podLabels[?'guestcluster.dev/stable-address'].orValue(
        variables.labels[?'guestcluster.dev/stable-address'].orValue('')) == 'service' ||
        !{{ .spec }}.domain.?devices.?interfaces.orValue([]).exists(interface, has(interface.masquerade))
      messageExpression: >-
        variables.name + " is a control plane whose address inside the guest no other machine reaches: write bridge
        in place of masquerade, or label it guestcluster.dev/stable-address: service if its address inside is that
        of its Service"
{{- end }}
