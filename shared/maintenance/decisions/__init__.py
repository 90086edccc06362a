"""The decisions that `rules` combines: approvals, the domain guard, reservations, monitors, and the merging of reports. All pure."""
