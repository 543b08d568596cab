#!/usr/bin/env bash
# Removes what up.sh made.
set -euo pipefail
exec kind delete cluster --name guestcluster
