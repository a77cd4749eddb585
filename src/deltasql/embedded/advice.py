"""The way out that every error of this package can offer."""

OWN_SERVER = 'use a server of yours: deltasql.connect("postgresql://user@host/database")'
