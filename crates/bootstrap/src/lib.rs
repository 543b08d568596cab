//! Renders the first-boot document of one machine from typed inputs.
