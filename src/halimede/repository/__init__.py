"""What lies on disk: layout, versions, labels, change detection."""
