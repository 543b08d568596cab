//! Reading consoles as they really look.

use guestcluster_bootstrap::console::{Boot, read};

#[test]
fn a_console_without_our_lines_is_silent() {
    assert_eq!(
        read("[    0.000000] Linux version 6.1\n\nDebian login: "),
        Boot::Silent
    );
}

#[test]
fn the_last_word_counts_and_other_lines_do_not() {
    let log = "[ OK ] Reached target\r\nguestcluster: kubeadm join started\r\n\
        [   12.3] IPv6: eth0 guestcluster: bootstrap succeeded\r\n[ OK ] Finished\r\n";
    assert_eq!(read(log), Boot::Succeeded);
}

#[test]
fn b4_output_belongs_to_the_failure_after_it() {
    let log = "guestcluster: kubeadm join started\nguestcluster: | one\nnoise\n\
        guestcluster: | two\nguestcluster: bootstrap failed: kubeadm join\n";
    assert_eq!(
        read(log),
        Boot::Failed {
            step: "kubeadm join".to_owned(),
            output: vec!["one".to_owned(), "two".to_owned()]
        }
    );
}
