"""Which calls may run: approvals, where they are stored, and the audit log."""
