//! What users write and read: GuestCluster, its conditions, reasons, labels and names.
