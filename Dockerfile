# The operator's image: one static binary and nothing else.
#   docker build -t registry.example.com/guestcluster/operator:0.1.0 .
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# As `cargo xtask` builds it: naming the target keeps the flag away from build scripts and macros.
RUN RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --package guestcluster-operator --target x86_64-unknown-linux-gnu

FROM scratch
COPY --from=build /source/target/x86_64-unknown-linux-gnu/release/guestcluster-operator /guestcluster-operator
# Numbers, since there is no /etc/passwd: a Pod with runAsNonRoot needs to see that this is not root.
USER 65532:65532
EXPOSE 8081
ENTRYPOINT ["/guestcluster-operator"]
