# Sourced by the scripts beside it.

# Tells people and the operator, who both read the machine's console. Images whose console cannot
# be opened fall back to standard output, which cloud-init and systemd keep in the journal.
say() {
    { printf 'guestcluster: %s\n' "$*" >>/dev/console; } 2>/dev/null ||
        printf 'guestcluster: %s\n' "$*"
}

# Cluster API's sign that the machine has joined; /run is empty after each start.
mark_success() {
    mkdir -p /run/cluster-api
    echo success >/run/cluster-api/bootstrap-success.complete
}
