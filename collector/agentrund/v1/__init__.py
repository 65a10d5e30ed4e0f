"""The control service's messages and stubs, generated from ``proto/agentrund/v1`` by ``make proto``."""
