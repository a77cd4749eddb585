package deltasql;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A file index that holds the files of one snapshot, from the log: Spark lists no directories, and filters prune
 * partitions. Used in the driver only. Janino, which compiles the class, supports neither generics nor lambdas.
 */
public final class SnapshotFileIndex implements FileIndex {
  private final Path root;
  private final StructType partitionSchema;
  private final String identity;
  private final List partitions = new ArrayList();
  private final List paths = new ArrayList();
  private long size = 0;

  /**
   * @param packed strings that each end with a zero character: the root, then for each partition its values (as
   *     `valueOf` parses them), the number of its files, and each file's path, size and modification time
   * @param identity a key that is equal for indexes of the same files
   */
  public SnapshotFileIndex(String packed, StructType partitionSchema, String identity) {
    this.partitionSchema = partitionSchema;
    this.identity = identity;
    Texts texts = new Texts(packed);
    this.root = new Path(texts.next());
    while (texts.hasNext()) partitions.add(partition(texts));
  }

  private PartitionDirectory partition(Texts texts) {
    Object[] values = new Object[partitionSchema.length()];
    for (int i = 0; i < values.length; i++) {
      values[i] = valueOf(texts.next(), partitionSchema.fields()[i].dataType());
    }
    FileStatus[] files = new FileStatus[Integer.parseInt(texts.next())];
    for (int i = 0; i < files.length; i++) {
      Path path = new Path(texts.next());
      long length = Long.parseLong(texts.next());
      files[i] = new FileStatus(length, false, 1, length, Long.parseLong(texts.next()), path);
      paths.add(path.toUri().toString());
      size += length;
    }
    return PartitionDirectory.apply(new GenericInternalRow(values), files);
  }

  /** Parse a partition value: an empty string is null, every other value follows an equals sign. */
  private static Object valueOf(String packed, DataType type) {
    if (packed.isEmpty()) return null;
    String text = packed.substring(1);
    if (type instanceof StringType) return UTF8String.fromString(text);
    if (type instanceof IntegerType || type instanceof DateType) return Integer.valueOf(text);
    if (type instanceof LongType) return Long.valueOf(text);
    if (type instanceof TimestampType || type instanceof TimestampNTZType) return Long.valueOf(text);
    if (type instanceof ShortType) return Short.valueOf(text);
    if (type instanceof ByteType) return Byte.valueOf(text);
    if (type instanceof BooleanType) return Boolean.valueOf(text);
    if (type instanceof FloatType) return Float.valueOf(text);
    if (type instanceof DoubleType) return Double.valueOf(text);
    if (type instanceof BinaryType) return Base64.getDecoder().decode(text);
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return Decimal.apply(new BigDecimal(text), decimal.precision(), decimal.scale());
    }
    throw new IllegalArgumentException("a partition column of type " + type.simpleString());
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    List found = partitions;
    for (int i = 0; i < partitionFilters.size(); i++) {
      found = matching((Expression) partitionFilters.apply(i), found);
    }
    return CollectionConverters.asScala(found).toSeq();
  }

  /** Return the partitions that satisfy a filter. Its attributes are bound to partition columns by name. */
  private List matching(Expression filter, List candidates) {
    Seq attributes = filter.references().toSeq();
    int[] places = new int[attributes.size()];
    for (int i = 0; i < places.length; i++) {
      places[i] = partitionSchema.fieldIndex(((Attribute) attributes.apply(i)).name());
    }
    BasePredicate predicate = Predicate$.MODULE$.create(filter, attributes);
    List found = new ArrayList();
    for (int i = 0; i < candidates.size(); i++) {
      Object[] all = ((GenericInternalRow) ((PartitionDirectory) candidates.get(i)).values()).values();
      Object[] used = new Object[places.length];
      for (int j = 0; j < used.length; j++) used[j] = all[places[j]];
      if (predicate.eval(new GenericInternalRow(used))) found.add(candidates.get(i));
    }
    return found;
  }

  public Seq rootPaths() {
    List roots = new ArrayList();
    roots.add(root);
    return CollectionConverters.asScala(roots).toSeq();
  }

  public String[] inputFiles() { return (String[]) paths.toArray(new String[0]); }

  public long sizeInBytes() { return size; }

  public StructType partitionSchema() { return partitionSchema; }

  public Option metadataOpsTimeNs() { return Option.empty(); }

  public void refresh() {}

  public boolean equals(Object other) {
    return other instanceof SnapshotFileIndex && ((SnapshotFileIndex) other).identity.equals(identity);
  }

  public int hashCode() { return identity.hashCode(); }

  private static final class Texts {
    private final String packed;
    private int place = 0;

    Texts(String packed) { this.packed = packed; }

    boolean hasNext() { return place < packed.length(); }

    String next() {
      int start = place;
      place = packed.indexOf('\0', start) + 1;
      return packed.substring(start, place - 1);
    }
  }
}
